// Optimizer updates of whole tensors, with which gradients update a strategy's variables.
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
  // int64 [n] in host memory: the rows of `values`; nullopt: all rows
  std::optional<Tensor> rows = {};
  Tensor values = {};  // the variable's shape, or [n, rest of it]; on any device
};

// Keras's clipping of gradients that are applied together: clipnorm for each gradient by itself,
// global_clipnorm for all together. clipvalue is applied here only to gradients of rows, since
// repeated rows are clipped before they are summed; the update clips whole gradients. float32 or
// float64. A clipped gradient gets its own memory, on the same device. Errors as tensor_math.h.
absl::Status ClipGradients(const OptimizerConfig& config, absl::Span<TensorGradient> gradients);

// Returns each row once, in ascending order; sums the values of repeated rows in their order. A
// whole gradient, or one whose rows are distinct and ascending, is returned unchanged. Errors as
// tensor_math.h.
absl::StatusOr<TensorGradient> WithDistinctRows(const TensorGradient& gradient);

// One variable's part of an update.
//   value, slots  float32 or float64, one dtype and shape, on one device; `slots` in the order of
//                 optimizer.slots().
//   gradient      copied to that device if necessary.
struct TensorUpdate {
  TensorGradient gradient = {};
  Tensor* value = nullptr;
  absl::Span<Tensor* const> slots = {};
};

// One update of all `updates`, in place; each GPU makes its share in few launches and one wait.
// Rows must be distinct and ascending. Other rows are updated with a gradient of zero, as in Keras,
// or skipped if that changes nothing (Optimizer::ZeroGradientIsIdentity).
// kInvalidArgument: other types or shapes, or invalid rows; then nothing is written. Other errors
// as tensor_math.h; some variables may then be updated.
absl::Status UpdateTensors(const Optimizer& optimizer, const UpdateStep& step,
                           absl::Span<const TensorUpdate> updates);

// Like UpdateTensors, for one variable.
absl::Status UpdateTensor(const Optimizer& optimizer, const UpdateStep& step,
                          const TensorGradient& gradient, Tensor* value,
                          absl::Span<Tensor* const> slots);

}  // namespace cairn
