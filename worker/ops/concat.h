// Copies blocks of columns: concatenation along axis 1, and its gradient. Thread safety: free
// functions.
#pragma once

#include <cstdint>

namespace cairn {

// Copies a block of `width` columns between row-major matrices whose rows are `from_stride` and
// `to_stride` floats apart. To concatenate, copy into a wide matrix; to split, which is the
// gradient, copy out of one. The matrices must not overlap.
void CopyColumns(const float* from, int64_t from_stride, int64_t rows, int64_t width, float* to,
                 int64_t to_stride);

}  // namespace cairn
