// float32 numbers as embedding tables keep them (common/variables/row_storage.h), and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/variables/row_storage.h"

namespace cairn {

// Of `count` numbers, kInt8's scale included. kFloat32 is for callers that copy.
size_t RowFormatBytes(RowFormat format, size_t count);
// Of the bytes of a format.
size_t RowFormatAlignment(RowFormat format);

// All below: RowFormatBytes(format, count) at `bytes`, aligned to RowFormatAlignment(format).
// What is beyond the largest number of the format, infinity too, becomes that: 65504, or
// 3.39e38 of kBFloat16 and of kInt8's largest. NaN stays NaN; with kInt8 it makes NaN of all.

// To the nearest; of two halves that are as near to the even one, of two bytes to that nearer 0.
void RoundToNearest(RowFormat format, const float* numbers, size_t count, std::byte* bytes);

// Up or down, in proportion to how near either is, so that the mean of many roundings is the
// number. `draws` and the index (that of the first number: `first`) decide, so the same arguments
// give the same bytes on every machine. A number that the format has is kept.
void RoundAtRandom(RowFormat format, const float* numbers, size_t count, uint64_t draws,
                   uint32_t first, std::byte* bytes);

// The numbers that `bytes` stand for.
void ExpandNumbers(RowFormat format, const std::byte* bytes, size_t count, float* numbers);

}  // namespace cairn
