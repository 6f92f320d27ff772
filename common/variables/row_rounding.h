// Converts float32 numbers to the formats of embedding tables (common/variables/row_storage.h) and
// back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/variables/row_storage.h"

namespace cairn {

// Bytes of `count` numbers, including kInt8's scale. kFloat32 is accepted here and below, and
// copied.
size_t RowFormatBytes(RowFormat format, size_t count);
// Required alignment of a format's bytes.
size_t RowFormatAlignment(RowFormat format);

// For all functions below, `bytes` points to RowFormatBytes(format, count) bytes, aligned to
// RowFormatAlignment(format). Numbers beyond the largest of the format, including infinity, are
// clamped to it: 65504, or 3.39e38 for kBFloat16 and for the largest number of kInt8. NaN stays
// NaN; with kInt8 it makes all numbers NaN.

// Rounds to nearest. Ties: float16 and bfloat16 to even, int8 toward 0.
void RoundToNearest(RowFormat format, const float* numbers, size_t count, std::byte* bytes);

// Rounds up or down at random, with probabilities by distance, so that the mean of many roundings
// is the number. `draws` and the index of each number (counted from `first`) decide, so the same
// arguments give the same bytes on every machine. Numbers that the format can represent stay
// unchanged.
void RoundAtRandom(RowFormat format, const float* numbers, size_t count, uint64_t draws,
                   uint32_t first, std::byte* bytes);

// The numbers that `bytes` represent.
void ExpandNumbers(RowFormat format, const std::byte* bytes, size_t count, float* numbers);

}  // namespace cairn
