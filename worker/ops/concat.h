// Blocks of columns: concatenation along axis 1, and its gradient.
// Thread safety: free functions.
#pragma once

#include <cstdint>

namespace cairn {

// Copies a block of `width` columns between row-major matrices whose rows are `from_stride` and
// `to_stride` floats apart. Into a wide matrix this concatenates, out of one it splits, which is
// the gradient. No overlap.
void CopyColumns(const float* from, int64_t from_stride, int64_t rows, int64_t width, float* to,
                 int64_t to_stride);

}  // namespace cairn
