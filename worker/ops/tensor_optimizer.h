// Optimizers' updates of whole tensors: how variables of strategies are moved by gradients.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/optimizer/optimizer.h"
#include "common/tensor.h"

namespace cairn {

// The gradient of one variable, whole or of some of its rows.
struct TensorGradient {
  // int64 [n] in host memory: `values` are theirs; none: all elements'.
  std::optional<Tensor> rows = {};
  Tensor values = {};  // the variable's shape, or [n, rest of it]; on any device
};

// Keras' clipping of gradients that are applied together: clipnorm each by itself, global_clipnorm
// all of them. clipvalue bounds those of rows, since rows that come several times are bounded
// before they are added up; whole gradients are bounded by the update. float32 or float64; what is
// clipped gets memory of its own, on the device that it was on. Errors as tensor_math.h's.
absl::Status ClipGradients(const OptimizerConfig& config, absl::Span<TensorGradient> gradients);

// Each row once, in ascending order; the values of a row that comes several times are added up in
// their order. A whole gradient, or one that is so, is returned as it is. Errors as
// tensor_math.h's.
absl::StatusOr<TensorGradient> WithDistinctRows(const TensorGradient& gradient);

// One update of a variable and its slots, in place. Rows are each there once, in ascending order;
// the others are updated with a gradient of zero, as Keras does, or left alone where that changes
// nothing (Optimizer::ZeroGradientIsIdentity).
//   value, slots  float32 or float64, one dtype and shape, on one device; `slots` in the order of
//                 optimizer.slots().
//   gradient      copied there, where it is elsewhere.
// kInvalidArgument: other types or shapes, or other rows; then nothing is written. Other
// errors as tensor_math.h's.
absl::Status UpdateTensor(const Optimizer& optimizer, const UpdateStep& step,
                          const TensorGradient& gradient, Tensor* value,
                          absl::Span<Tensor* const> slots);

}  // namespace cairn
