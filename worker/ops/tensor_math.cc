#include "worker/ops/tensor_math.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "common/errors.h"
#include "common/numeric_type.h"
#include "common/shape.h"
#include "common/status.h"
#include "glog/logging.h"
#include "worker/ops/device_tensors.h"

namespace cairn {
namespace {

absl::Status Differ(const Tensor& first, const Tensor& other) {
  return InvalidArgument("tensors of different types: ", first.TypeText(), " and ",
                         other.TypeText(), "; shapes and dtypes must be equal");
}

bool SameType(const Tensor& a, const Tensor& b) {
  return !a.is_text() && !b.is_text() && a.dtype() == b.dtype() && a.shape() == b.shape();
}

// Lets `use` compute with the ops of `device`.
absl::Status ComputeOn(Device device, absl::FunctionRef<void(TensorOps&)> use) {
  if (device.is_cpu()) {
    use(HostTensorOps());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<DeviceTensors> gpu, DeviceTensors::Of(device));
  return gpu->Compute([use](DeviceQueue& queue) { use(queue.tensor_ops()); });
}

// All CPUs share the host's memory.
bool SameMemory(Device a, Device b) { return a == b || (a.is_cpu() && b.is_cpu()); }

// Copies into memory of the same size on any device.
absl::Status CopyBytes(const Tensor& from, Tensor* to) {
  const size_t bytes = from.bytes();
  const void* const source = from.data();
  void* const target = to->mutable_data();
  if (bytes == 0) return absl::OkStatus();
  if (SameMemory(from.device(), to->device())) {
    return ComputeOn(to->device(), [&](TensorOps& ops) {
      ops.CopyBlocks(source, bytes, 1, bytes, target, bytes);
    });
  }
  const bool out = to->device().is_cpu();
  ASSIGN_OR_RETURN(const std::shared_ptr<DeviceTensors> gpu,
                   DeviceTensors::Of(out ? from.device() : to->device()));
  return gpu->Compute([&](DeviceQueue& queue) {
    if (out) {
      queue.CopyOut(source, target, bytes);
    } else if (from.device().is_cpu()) {
      queue.AwaitCopy(queue.CopyIn(source, target, bytes));
    } else {
      queue.CopyFrom(from.device(), source, target, bytes);
    }
  });
}

size_t Count(const Tensor& tensor) { return static_cast<size_t>(tensor.elements()); }

bool AllDistinct(absl::Span<const int64_t> rows) {
  return absl::flat_hash_set<int64_t>(rows.begin(), rows.end()).size() == rows.size();
}

// Groups equal rows. Returns the distinct rows, then where each row's entries begin in the order
// (and the end of the last), then the order itself: indices into `rows`, those of one row adjacent
// and ascending. Sets segments->count to the number of distinct rows.
Tensor GroupRows(absl::Span<const int64_t> rows, RowSegments* segments) {
  std::vector<int64_t> order(rows.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, [&rows](int64_t a, int64_t b) {
    return rows[static_cast<size_t>(a)] < rows[static_cast<size_t>(b)];
  });
  std::vector<int64_t> all, starts;
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t row = rows[static_cast<size_t>(order[i])];
    if (!all.empty() && all.back() == row) continue;
    all.push_back(row);
    starts.push_back(static_cast<int64_t>(i));
  }
  segments->count = all.size();
  starts.push_back(static_cast<int64_t>(order.size()));
  all.insert(all.end(), starts.begin(), starts.end());
  all.insert(all.end(), order.begin(), order.end());
  return Tensor::Vector<int64_t>(all);
}

// kInvalidArgument: an integer divisor is 0.
absl::Status CheckDivisors(const Tensor& values) {
  if (IsFloating(values.dtype())) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Tensor host, HostTensor(values));
  for (const double value : host.ToDoubles()) {
    if (value == 0) return absl::InvalidArgumentError("division of integers by zero");
  }
  return absl::OkStatus();
}

// The products of the extents before `axis` and after it, and the extent of `axis`.
struct Split {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;
};

Split SplitAt(const Shape& shape, int64_t axis) {
  Split split;
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    (at < axis ? split.outer : at == axis ? split.extent : split.inner) *= shape[i];
  }
  return split;
}

// How many elements of an axis one thread of `device` adds up. A GPU needs many threads, so a few
// long sums are divided, which only changes the order of additions.
int64_t SumChunk(Device device, const Split& split) {
  constexpr int64_t kThreads = 1 << 15, kShortest = 256;
  if (device.is_cpu() || split.outer * split.inner >= kThreads) return split.extent;
  const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(split.extent)));
  return split.extent <= kShortest ? split.extent : std::max(kShortest, root);
}

// Sums over one axis.
absl::StatusOr<Tensor> SumAxis(const Tensor& tensor, int64_t axis) {
  const Split split = SplitAt(tensor.shape(), axis);
  const auto outer = static_cast<size_t>(split.outer), inner = static_cast<size_t>(split.inner);
  const auto extent = static_cast<size_t>(split.extent);
  const auto chunk = static_cast<size_t>(std::max(SumChunk(tensor.device(), split), int64_t{1}));
  const size_t chunks = ChunksOf(extent, chunk);
  Shape shape = tensor.shape();
  shape[static_cast<size_t>(axis)] = static_cast<int64_t>(chunks);
  ASSIGN_OR_RETURN(Tensor sums, NewTensor(tensor.dtype(), shape, tensor.device()));
  RETURN_IF_ERROR(ComputeOn(tensor.device(), [&](TensorOps& ops) {
    ops.SumMiddle(tensor.dtype(), tensor.data(), outer, extent, inner, chunk, sums.mutable_data());
  }));
  if (chunks > 1) return SumAxis(sums, axis);
  shape.erase(shape.begin() + axis);
  return sums.Reshaped(std::move(shape));
}

}  // namespace

absl::StatusOr<Tensor> NewTensor(DType dtype, Shape shape, Device device) {
  if (device.is_cpu()) return Tensor::Uninitialized(dtype, std::move(shape), device);
  ASSIGN_OR_RETURN(const std::shared_ptr<DeviceTensors> gpu, DeviceTensors::Of(device));
  return gpu->Uninitialized(dtype, std::move(shape));
}

absl::StatusOr<Tensor> FullTensor(DType dtype, Shape shape, double value, Device device) {
  ASSIGN_OR_RETURN(Tensor full, NewTensor(dtype, std::move(shape), device));
  RETURN_IF_ERROR(ComputeOn(
      device, [&](TensorOps& ops) { ops.Fill(dtype, value, Count(full), full.mutable_data()); }));
  return full;
}

absl::StatusOr<Tensor> CopyTensor(const Tensor& tensor, Device device) {
  if (tensor.is_text()) {
    if (device.is_cpu()) return tensor.CopyTo(device);
    return InvalidArgument(tensor.TypeText(), " cannot be copied to ", device.text(),
                           ": texts live on CPUs");
  }
  ASSIGN_OR_RETURN(Tensor copy, NewTensor(tensor.dtype(), tensor.shape(), device));
  RETURN_IF_ERROR(CopyBytes(tensor, &copy));
  return copy;
}

absl::StatusOr<Tensor> TensorOn(Device device, const Tensor& tensor) {
  if (SameMemory(tensor.device(), device)) return tensor;
  return CopyTensor(tensor, device);
}

absl::StatusOr<Tensor> HostTensor(const Tensor& tensor) { return TensorOn(Cpu(0), tensor); }

absl::StatusOr<Tensor> CastTensor(const Tensor& tensor, DType dtype) {
  ASSIGN_OR_RETURN(Tensor cast, NewTensor(dtype, tensor.shape(), tensor.device()));
  RETURN_IF_ERROR(ComputeOn(tensor.device(), [&](TensorOps& ops) {
    ops.Cast(tensor.dtype(), tensor.data(), Count(tensor), dtype, cast.mutable_data());
  }));
  return cast;
}

absl::StatusOr<Tensor> AddTensors(absl::Span<const Tensor> terms) {
  for (const Tensor& term : terms) {
    if (!SameType(terms[0], term)) return Differ(terms[0], term);
  }
  const DType dtype = terms[0].dtype();
  const bool narrow = Is16Bit(dtype);
  ASSIGN_OR_RETURN(Tensor sum, CastTensor(terms[0], narrow ? DType::kFloat32 : dtype));
  for (const Tensor& term : terms.subspan(1)) {
    if (!narrow) {
      RETURN_IF_ERROR(ApplyElements(ElementOp::kAdd, term, &sum));
      continue;
    }
    ASSIGN_OR_RETURN(const Tensor wide, CastTensor(term, DType::kFloat32));
    RETURN_IF_ERROR(ApplyElements(ElementOp::kAdd, wide, &sum));
  }
  if (narrow) return CastTensor(sum, dtype);
  return sum;
}

absl::StatusOr<Tensor> DivideTensor(const Tensor& tensor, double divisor) {
  if (!IsFloating(tensor.dtype()) && !(std::abs(divisor) >= 1 && std::abs(divisor) < 0x1p31)) {
    return InvalidArgument("division of integers by ", divisor,
                           "; allowed are absolute values from 1 to 2^31 - 1");
  }
  const bool narrow = Is16Bit(tensor.dtype());
  const DType dtype = narrow ? DType::kFloat32 : tensor.dtype();
  ASSIGN_OR_RETURN(Tensor quotient, CastTensor(tensor, dtype));
  RETURN_IF_ERROR(ComputeOn(tensor.device(), [&](TensorOps& ops) {
    ops.Divide(dtype, divisor, Count(quotient), quotient.mutable_data());
  }));
  if (narrow) return CastTensor(quotient, tensor.dtype());
  return quotient;
}

absl::StatusOr<std::vector<int64_t>> CheckAxes(absl::Span<const int64_t> axes, int64_t rank) {
  std::vector<int64_t> checked;
  for (const int64_t axis : axes) {
    if (rank == 0) {
      return InvalidArgument("axis ", axis,
                             " is out of range: a scalar has no axes; give none, or a tensor that "
                             "has the axis");
    }
    if (axis < -rank || axis >= rank) {
      return InvalidArgument("axis ", axis, " is out of range for rank ", rank, "; allowed are ",
                             -rank, " to ", rank - 1);
    }
    checked.push_back(axis < 0 ? axis + rank : axis);
  }
  std::ranges::sort(checked);
  const auto twice = std::ranges::adjacent_find(checked);
  if (twice == checked.end()) return checked;
  return InvalidArgument("axis ", *twice, " is given twice");
}

absl::StatusOr<Tensor> SumAxes(const Tensor& tensor, absl::Span<const int64_t> axes) {
  if (axes.empty()) return CopyTensor(tensor, tensor.device());
  const bool narrow = Is16Bit(tensor.dtype());
  Tensor sum = tensor;
  if (narrow) {
    ASSIGN_OR_RETURN(sum, CastTensor(tensor, DType::kFloat32));
  }
  for (size_t i = axes.size(); i-- > 0;) {
    ASSIGN_OR_RETURN(sum, SumAxis(sum, axes[i]));
  }
  if (narrow) return CastTensor(sum, tensor.dtype());
  return sum;
}

absl::StatusOr<Tensor> ConcatTensors(absl::Span<const Tensor> parts, int64_t axis) {
  const Tensor& first = parts[0];
  if (first.rank() == 0) {
    return absl::InvalidArgumentError("scalars cannot be concatenated; give them an axis first");
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> checked, CheckAxes({axis}, first.rank()));
  const auto at = static_cast<size_t>(checked[0]);
  Shape shape = first.shape();
  shape[at] = 0;
  for (const Tensor& part : parts) {
    Shape other = part.shape();
    if (part.is_text() || part.dtype() != first.dtype() || other.size() != shape.size()) {
      return Differ(first, part);
    }
    const int64_t extent = std::exchange(other[at], shape[at]);
    if (other != shape) return Differ(first, part);
    shape[at] += extent;
    RETURN_IF_ERROR(ElementCount(shape).status());  // before the extents of more parts overflow
  }
  const Device device = first.device();
  std::vector<Tensor> here;
  for (const Tensor& part : parts) {
    ASSIGN_OR_RETURN(here.emplace_back(), TensorOn(device, part));
  }
  ASSIGN_OR_RETURN(Tensor whole, NewTensor(first.dtype(), shape, device));
  const size_t element = DTypeBytes(first.dtype());
  const Split all = SplitAt(shape, checked[0]);
  const size_t stride = static_cast<size_t>(all.extent * all.inner) * element;
  RETURN_IF_ERROR(ComputeOn(device, [&](TensorOps& ops) {
    auto* to = static_cast<std::byte*>(whole.mutable_data());
    for (const Tensor& part : here) {
      const size_t bytes = static_cast<size_t>(part.shape()[at] * all.inner) * element;
      if (bytes == 0) continue;
      ops.CopyBlocks(part.data(), bytes, static_cast<size_t>(all.outer), bytes, to, stride);
      to += bytes;
    }
  }));
  return whole;
}

absl::StatusOr<Tensor> SliceTensor(const Tensor& tensor, int64_t axis, int64_t first,
                                   int64_t count) {
  const Split split = SplitAt(tensor.shape(), axis);
  CHECK(first >= 0 && count >= 0 && first + count <= split.extent)
      << "[" << first << ", " << first + count << ") of axis " << axis << " of "
      << tensor.TypeText();
  Shape shape = tensor.shape();
  shape[static_cast<size_t>(axis)] = count;
  ASSIGN_OR_RETURN(Tensor slice, NewTensor(tensor.dtype(), std::move(shape), tensor.device()));
  const size_t inner = static_cast<size_t>(split.inner) * DTypeBytes(tensor.dtype());
  const size_t bytes = static_cast<size_t>(count) * inner;
  if (bytes == 0) return slice;
  RETURN_IF_ERROR(ComputeOn(tensor.device(), [&](TensorOps& ops) {
    const auto* from = static_cast<const std::byte*>(tensor.data());
    ops.CopyBlocks(from + static_cast<size_t>(first) * inner,
                   static_cast<size_t>(split.extent) * inner, static_cast<size_t>(split.outer),
                   bytes, slice.mutable_data(), bytes);
  }));
  return slice;
}

absl::StatusOr<Tensor> TakeRows(const Tensor& tensor, absl::Span<const int64_t> rows) {
  Shape shape = tensor.shape();
  shape[0] = static_cast<int64_t>(rows.size());
  const size_t bytes = static_cast<size_t>(RowWidth(shape)) * DTypeBytes(tensor.dtype());
  ASSIGN_OR_RETURN(Tensor taken, NewTensor(tensor.dtype(), std::move(shape), tensor.device()));
  ASSIGN_OR_RETURN(const Tensor named, TensorOn(tensor.device(), Tensor::Vector<int64_t>(rows)));
  if (taken.elements() == 0) return taken;
  RETURN_IF_ERROR(ComputeOn(tensor.device(), [&](TensorOps& ops) {
    ops.TakeRows(tensor.data(), static_cast<const int64_t*>(named.data()), rows.size(), bytes,
                 taken.mutable_data());
  }));
  return taken;
}

absl::Status ApplyElements(ElementOp op, const Tensor& values, Tensor* to) {
  if (!SameType(values, *to)) return Differ(*to, values);
  if (op == ElementOp::kDiv) RETURN_IF_ERROR(CheckDivisors(values));
  if (op == ElementOp::kSet) return CopyBytes(values, to);
  if (Is16Bit(values.dtype())) {
    ASSIGN_OR_RETURN(Tensor wide, CastTensor(*to, DType::kFloat32));
    ASSIGN_OR_RETURN(const Tensor terms, CastTensor(values, DType::kFloat32));
    RETURN_IF_ERROR(ApplyElements(op, terms, &wide));
    ASSIGN_OR_RETURN(const Tensor narrow, CastTensor(wide, to->dtype()));
    return CopyBytes(narrow, to);
  }
  ASSIGN_OR_RETURN(const Tensor terms, TensorOn(to->device(), values));
  return ComputeOn(to->device(), [&](TensorOps& ops) {
    ops.Combine(op, terms.dtype(), terms.data(), Count(terms), to->mutable_data());
  });
}

absl::Status ApplyRows(ElementOp op, const Tensor& indices, const Tensor& values, Tensor* to) {
  Shape wanted = to->shape();
  if (wanted.empty()) return absl::InvalidArgumentError("a scalar has no rows");
  const int64_t rows = std::exchange(wanted[0], indices.elements());
  if (indices.is_text() || IsFloating(indices.dtype()) || indices.rank() != 1) {
    return InvalidArgument("rows are given as ", indices.TypeText(), "; allowed is int64 [n]");
  }
  if (values.is_text() || values.dtype() != to->dtype() || values.shape() != wanted) {
    return InvalidArgument("values of the rows are ", values.TypeText(), "; expected ",
                           DTypeName(to->dtype()), " ", ShapeText(wanted));
  }
  if (op == ElementOp::kDiv) RETURN_IF_ERROR(CheckDivisors(values));
  ASSIGN_OR_RETURN(const Tensor wide, CastTensor(indices, DType::kInt64));
  ASSIGN_OR_RETURN(const Tensor known, HostTensor(wide));
  for (const int64_t row : known.values<int64_t>()) {
    if (row < 0 || row >= rows) return InvalidArgument("row ", row, " is outside [0, ", rows, ")");
  }
  if (Is16Bit(to->dtype())) {
    ASSIGN_OR_RETURN(Tensor floats, CastTensor(*to, DType::kFloat32));
    ASSIGN_OR_RETURN(const Tensor terms, CastTensor(values, DType::kFloat32));
    RETURN_IF_ERROR(ApplyRows(op, wide, terms, &floats));
    ASSIGN_OR_RETURN(const Tensor narrow, CastTensor(floats, to->dtype()));
    return CopyBytes(narrow, to);
  }
  const Device device = to->device();
  ASSIGN_OR_RETURN(const Tensor terms, TensorOn(device, values));
  const bool grouped = !device.is_cpu() && !AllDistinct(known.values<int64_t>());
  RowSegments segments{.count = Count(wide)};
  ASSIGN_OR_RETURN(
      const Tensor named,
      TensorOn(device, grouped ? GroupRows(known.values<int64_t>(), &segments) : wide));
  segments.rows = static_cast<const int64_t*>(named.data());
  if (grouped) {
    segments.starts = segments.rows + segments.count;
    segments.order = segments.starts + segments.count + 1;
  }
  return ComputeOn(device, [&](TensorOps& ops) {
    ops.CombineRows(op, to->dtype(), segments, static_cast<size_t>(RowWidth(to->shape())),
                    terms.data(), to->mutable_data());
  });
}

}  // namespace cairn
