// Gradient clipping with TensorFlow's rules, NaN cases included (tfdist/golden/clipping.json).
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace cairn {

// Clips each element to [low, high]; NaN stays NaN.
void ClipByValue(absl::Span<float> tensor, float low, float high);

// sqrt(sum of squares), within a relative error of 2e-6; infinite where TensorFlow's float32 sum of
// squares overflows.
float L2Norm(absl::Span<const float> tensor);
// The norm of all tensors together.
float GlobalNorm(absl::Span<const absl::Span<const float>> tensors);

// tensor * limit / max(norm, limit).
void ClipByNorm(absl::Span<float> tensor, float limit);
// Every tensor * limit * min(1 / norm, 1 / limit); every element NaN if the norm is not finite.
// Returns the norm before clipping.
float ClipByGlobalNorm(absl::Span<const absl::Span<float>> tensors, float limit);

// As above, in float64.
void ClipByValue(absl::Span<double> tensor, double low, double high);
double L2Norm(absl::Span<const double> tensor);
void ClipByNorm(absl::Span<double> tensor, double limit);

// True where no element is NaN or infinite.
bool AllFinite(absl::Span<const float> tensor);
bool AllFinite(absl::Span<const double> tensor);

}  // namespace cairn
