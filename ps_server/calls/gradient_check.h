// Checks a gradient for NaN and infinity, and clips its norm.
#pragma once

#include <cstddef>
#include <vector>

#include "common/dtype.h"

namespace cairn {

// True where none of `count` elements of a floating dtype is NaN or infinite.
bool AllFinite(DType dtype, const std::byte* values, size_t count);

// The gradient scaled so that its norm is at most `limit`, in `clipped`: Keras' clipnorm.
void ClipNorm(DType dtype, const std::byte* gradient, size_t count, double limit,
              std::vector<std::byte>& clipped);

}  // namespace cairn
