// Arithmetic on whole tensors of any dtype, with which strategies reduce, gather and assign. The
// models' kernels are in the other files of this directory.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor.h"
#include "worker/ops/tensor_ops.h"

namespace cairn {

// Works on CPUs and GPUs (device_tensors.h documents GPUs). Results have their own memory on the
// first argument's device; arguments on other devices are copied there first. The 16-bit types are
// computed in float32 and rounded once. Errors of every function: kFailedPrecondition: a GPU that
// this process cannot use; kResourceExhausted: no memory on it; kInternal: the GPU's error.

// A tensor that is not initialized.
absl::StatusOr<Tensor> NewTensor(DType dtype, Shape shape, Device device);
// A tensor whose elements all are `value`, converted to `dtype`.
absl::StatusOr<Tensor> FullTensor(DType dtype, Shape shape, double value, Device device);
// A copy with its own memory on `device`. kInvalidArgument: a text tensor to a GPU.
absl::StatusOr<Tensor> CopyTensor(const Tensor& tensor, Device device);
// `tensor` itself if it is in the memory of `device` (all CPUs share one), else a copy there.
absl::StatusOr<Tensor> TensorOn(Device device, const Tensor& tensor);
// `tensor` itself if it is in host memory, else a copy on cpu:0: for code that reads elements.
absl::StatusOr<Tensor> HostTensor(const Tensor& tensor);

// The sum in the order given, at least one term. kInvalidArgument: shapes or dtypes differ.
absl::StatusOr<Tensor> AddTensors(absl::Span<const Tensor> terms);
// Integer division rounds toward zero. kInvalidArgument: integers are divided by a number below 1
// or beyond int32 (absolute values).
absl::StatusOr<Tensor> DivideTensor(const Tensor& tensor, double divisor);
// Floating-point numbers are truncated to integers as in C++.
absl::StatusOr<Tensor> CastTensor(const Tensor& tensor, DType dtype);

// Distinct axes in [0, rank), ascending. kInvalidArgument: an axis outside [-rank, rank), or twice.
absl::StatusOr<std::vector<int64_t>> CheckAxes(absl::Span<const int64_t> axes, int64_t rank);
// The sum over `axes` (CheckAxes' result), which are removed from the shape.
absl::StatusOr<Tensor> SumAxes(const Tensor& tensor, absl::Span<const int64_t> axes);

// Concatenates along `axis`, where a negative axis counts from the last. kInvalidArgument: scalars,
// an axis out of range, different dtypes, ranks or other extents, or a result that ElementCount
// refuses.
absl::StatusOr<Tensor> ConcatTensors(absl::Span<const Tensor> parts, int64_t axis);
// Extents [first, first + count) of axis `axis`, which must lie inside.
absl::StatusOr<Tensor> SliceTensor(const Tensor& tensor, int64_t axis, int64_t first,
                                   int64_t count);
// Rows `rows` along axis 0, which must exist, in any order, repeats allowed.
absl::StatusOr<Tensor> TakeRows(const Tensor& tensor, absl::Span<const int64_t> rows);

// to[i] = to[i] op values[i]. kInvalidArgument: shapes or dtypes differ.
absl::Status ApplyElements(ElementOp op, const Tensor& values, Tensor* to);
// Row indices[i] of `to` becomes itself op row i of `values`, in the order of i. `indices` is int64
// [n] or int32 [n], `values` [n, rest of to's shape]. kInvalidArgument: other shapes or dtypes, a
// row out of range; then nothing is written.
absl::Status ApplyRows(ElementOp op, const Tensor& indices, const Tensor& values, Tensor* to);

}  // namespace cairn
