// Arithmetic on whole tensors of any dtype: what strategies reduce, gather and assign with. The
// models' own kernels are in the other files of this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor.h"
#include "worker/ops/tensor_ops.h"

namespace cairn {

// On CPUs and GPUs alike (device_tensors.h says what holds of GPUs). Results have memory of their
// own on the first argument's device; arguments on other devices are copied there first. The 16-bit
// types are computed in float32 and rounded once. Errors of every function: kFailedPrecondition: a
// GPU that this process cannot use; kResourceExhausted: no memory on it; kInternal: what it said.

// Not initialized.
absl::StatusOr<Tensor> NewTensor(DType dtype, Shape shape, Device device);
// Every element is `value`, converted to `dtype`.
absl::StatusOr<Tensor> FullTensor(DType dtype, Shape shape, double value, Device device);
// A copy with memory of its own on `device`. kInvalidArgument: texts to a GPU.
absl::StatusOr<Tensor> CopyTensor(const Tensor& tensor, Device device);
// `tensor` itself where it is in the memory of `device` (that of all CPUs is one), else a copy
// there.
absl::StatusOr<Tensor> TensorOn(Device device, const Tensor& tensor);
// The same in host memory, on cpu:0 where it is a copy: for what reads elements.
absl::StatusOr<Tensor> HostTensor(const Tensor& tensor);

// The sum in the order given, at least one term. kInvalidArgument: shapes or dtypes differ.
absl::StatusOr<Tensor> AddTensors(absl::Span<const Tensor> terms);
// Integers are divided rounding to zero; `divisor` is not 0 then.
absl::StatusOr<Tensor> DivideTensor(const Tensor& tensor, double divisor);
// Floating numbers are cut to integers as C++ cuts them.
absl::StatusOr<Tensor> CastTensor(const Tensor& tensor, DType dtype);

// Distinct axes in [0, rank), ascending. kInvalidArgument: an axis outside [-rank, rank), or twice.
absl::StatusOr<std::vector<int64_t>> CheckAxes(absl::Span<const int64_t> axes, int64_t rank);
// The sum over `axes` (CheckAxes' result), which the result no longer has.
absl::StatusOr<Tensor> SumAxes(const Tensor& tensor, absl::Span<const int64_t> axes);

// One after the other along `axis`, negative from the last. kInvalidArgument: scalars, an axis out
// of range, dtypes, ranks or other extents that differ.
absl::StatusOr<Tensor> ConcatTensors(absl::Span<const Tensor> parts, int64_t axis);
// Extents [first, first + count) of axis `axis`, which must lie inside.
absl::StatusOr<Tensor> SliceTensor(const Tensor& tensor, int64_t axis, int64_t first,
                                   int64_t count);
// Rows `rows` along axis 0, which must be there, in any order, repeats allowed.
absl::StatusOr<Tensor> TakeRows(const Tensor& tensor, absl::Span<const int64_t> rows);

// to[i] = to[i] op values[i]. kInvalidArgument: shapes or dtypes differ.
absl::Status ApplyElements(ElementOp op, const Tensor& values, Tensor* to);
// Row indices[i] of `to` = itself op row i of `values`, in order of i. `indices` is int64 [n] or
// int32 [n], `values` [n, rest of to's shape]. kInvalidArgument: other shapes or dtypes, a row out
// of range; then nothing is written.
absl::Status ApplyRows(ElementOp op, const Tensor& indices, const Tensor& values, Tensor* to);

}  // namespace cairn
