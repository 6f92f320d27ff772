// Copies rows between the caller's order and the order of the servers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// to[i] = from[order[i]] for `rows` rows of `row_bytes` bytes. `from` and `to` do not overlap.
void GatherRows(const std::byte* from, const int32_t* order, int64_t rows, size_t row_bytes,
                std::byte* to);
// to[order[i]] = from[i], likewise.
void ScatterRows(const std::byte* from, const int32_t* order, int64_t rows, size_t row_bytes,
                 std::byte* to);

// to[order[i]] += from[i] for `rows` rows of `width` floats.
void AddRows(const float* from, const int32_t* order, int64_t rows, size_t width, float* to);

}  // namespace cairn
