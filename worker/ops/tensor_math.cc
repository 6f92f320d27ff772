#include "worker/ops/tensor_math.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/numeric_type.h"
#include "common/status.h"
#include "glog/logging.h"

namespace cairn {
namespace {

absl::Status Differ(const Tensor& first, const Tensor& other) {
  return absl::InvalidArgumentError(absl::StrCat("tensors of different types: ", first.TypeText(),
                                                 " and ", other.TypeText(),
                                                 "; shapes and dtypes must be equal"));
}

bool SameType(const Tensor& a, const Tensor& b) {
  return !a.is_text() && !b.is_text() && a.dtype() == b.dtype() && a.shape() == b.shape();
}

template <typename T>
T Combine(ElementOp op, T old, T value) {
  switch (op) {
    case ElementOp::kSet: return value;
    case ElementOp::kAdd: return old + value;
    case ElementOp::kSub: return old - value;
    case ElementOp::kMul: return old * value;
    case ElementOp::kDiv: return old / value;
    case ElementOp::kMin: return std::min(old, value);
    case ElementOp::kMax: return std::max(old, value);
  }
  return value;
}

template <typename T>
void CombineSpan(ElementOp op, const T* values, size_t count, T* to) {
  // A loop for each operation, so that the compiler makes vectors of it.
  switch (op) {
    case ElementOp::kSet: std::copy_n(values, count, to); return;
    case ElementOp::kAdd:
      for (size_t i = 0; i < count; ++i) to[i] += values[i];
      return;
    case ElementOp::kSub:
      for (size_t i = 0; i < count; ++i) to[i] -= values[i];
      return;
    default:
      for (size_t i = 0; i < count; ++i) to[i] = Combine(op, to[i], values[i]);
  }
}

// Integers cannot be divided by zero.
absl::Status CheckDivisors(const Tensor& values) {
  if (IsFloating(values.dtype())) return absl::OkStatus();
  for (const double value : values.ToDoubles()) {
    if (value == 0) return absl::InvalidArgumentError("division of integers by zero");
  }
  return absl::OkStatus();
}

// Extents before, at and after `axis`.
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

// The sum over one axis.
Tensor SumAxis(const Tensor& tensor, int64_t axis) {
  const Split split = SplitAt(tensor.shape(), axis);
  Shape shape = tensor.shape();
  shape.erase(shape.begin() + axis);
  Tensor sum = Tensor::Zeros(tensor.dtype(), std::move(shape), tensor.device());
  WithNumericType(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = tensor.values<T>().data();
    T* to = sum.mutable_values<T>().data();
    for (int64_t outer = 0; outer < split.outer; ++outer, to += split.inner) {
      for (int64_t i = 0; i < split.extent; ++i, from += split.inner) {
        CombineSpan(ElementOp::kAdd, from, static_cast<size_t>(split.inner), to);
      }
    }
  });
  return sum;
}

}  // namespace

Tensor CastTensor(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor.Copy();
  Tensor cast = Tensor::Uninitialized(dtype, tensor.shape(), tensor.device());
  const auto count = static_cast<size_t>(tensor.elements());
  if (Is16Bit(dtype)) {
    const Tensor floats = CastTensor(tensor, DType::kFloat32);
    FromFloat32(dtype, floats.values<float>().data(), count, cast.mutable_data());
  } else if (Is16Bit(tensor.dtype())) {
    std::vector<float> floats(count);
    ToFloat32(tensor.dtype(), tensor.data(), count, floats.data());
    WithNumericType(dtype, [&](auto zero) {
      auto to = cast.mutable_values<decltype(zero)>();
      for (size_t i = 0; i < count; ++i) to[i] = static_cast<decltype(zero)>(floats[i]);
    });
  } else {
    WithNumericType(tensor.dtype(), [&](auto from_zero) {
      const auto from = tensor.values<decltype(from_zero)>();
      WithNumericType(dtype, [&](auto to_zero) {
        auto to = cast.mutable_values<decltype(to_zero)>();
        for (size_t i = 0; i < count; ++i) to[i] = static_cast<decltype(to_zero)>(from[i]);
      });
    });
  }
  return cast;
}

absl::StatusOr<Tensor> AddTensors(absl::Span<const Tensor> terms) {
  for (const Tensor& term : terms) {
    if (!SameType(terms[0], term)) return Differ(terms[0], term);
  }
  const DType dtype = terms[0].dtype();
  Tensor sum = CastTensor(terms[0], Is16Bit(dtype) ? DType::kFloat32 : dtype);
  for (const Tensor& term : terms.subspan(1)) {
    const Tensor wide = Is16Bit(dtype) ? CastTensor(term, DType::kFloat32) : term;
    RETURN_IF_ERROR(ApplyElements(ElementOp::kAdd, wide, &sum));
  }
  return Is16Bit(dtype) ? CastTensor(sum, dtype) : sum;
}

Tensor DivideTensor(const Tensor& tensor, double divisor) {
  if (Is16Bit(tensor.dtype())) {
    return CastTensor(DivideTensor(CastTensor(tensor, DType::kFloat32), divisor), tensor.dtype());
  }
  Tensor quotient = tensor.Copy();
  WithNumericType(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (T& value : quotient.mutable_values<T>()) value /= static_cast<T>(divisor);
  });
  return quotient;
}

absl::StatusOr<std::vector<int64_t>> CheckAxes(absl::Span<const int64_t> axes, int64_t rank) {
  std::vector<int64_t> checked;
  for (const int64_t axis : axes) {
    if (axis < -rank || axis >= rank) {
      return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is out of range for rank ",
                                                     rank, "; allowed are ", -rank, " to ",
                                                     rank - 1));
    }
    checked.push_back(axis < 0 ? axis + rank : axis);
  }
  std::sort(checked.begin(), checked.end());
  const auto twice = std::adjacent_find(checked.begin(), checked.end());
  if (twice == checked.end()) return checked;
  return absl::InvalidArgumentError(absl::StrCat("axis ", *twice, " is given twice"));
}

Tensor SumAxes(const Tensor& tensor, absl::Span<const int64_t> axes) {
  if (Is16Bit(tensor.dtype())) {
    return CastTensor(SumAxes(CastTensor(tensor, DType::kFloat32), axes), tensor.dtype());
  }
  if (axes.empty()) return tensor.Copy();
  Tensor sum = tensor;
  for (size_t i = axes.size(); i-- > 0;) sum = SumAxis(sum, axes[i]);
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
  }
  Tensor whole = Tensor::Uninitialized(first.dtype(), shape, first.device());
  const size_t element = DTypeBytes(first.dtype());
  const auto outer_count = static_cast<size_t>(SplitAt(shape, checked[0]).outer);
  auto* to = static_cast<char*>(whole.mutable_data());
  for (size_t outer = 0; outer < outer_count; ++outer) {
    for (const Tensor& part : parts) {
      const Split split = SplitAt(part.shape(), checked[0]);
      const size_t bytes = static_cast<size_t>(split.extent * split.inner) * element;
      if (bytes > 0) std::memcpy(to, static_cast<const char*>(part.data()) + outer * bytes, bytes);
      to += bytes;
    }
  }
  return whole;
}

Tensor SliceTensor(const Tensor& tensor, int64_t axis, int64_t first, int64_t count) {
  const Split split = SplitAt(tensor.shape(), axis);
  CHECK(first >= 0 && count >= 0 && first + count <= split.extent)
      << "[" << first << ", " << first + count << ") of axis " << axis << " of "
      << tensor.TypeText();
  Shape shape = tensor.shape();
  shape[static_cast<size_t>(axis)] = count;
  Tensor slice = Tensor::Uninitialized(tensor.dtype(), std::move(shape), tensor.device());
  const size_t stride = static_cast<size_t>(split.inner) * DTypeBytes(tensor.dtype());
  const size_t bytes = static_cast<size_t>(count) * stride;
  const char* from = static_cast<const char*>(tensor.data()) + static_cast<size_t>(first) * stride;
  auto* to = static_cast<char*>(slice.mutable_data());
  for (int64_t outer = 0; outer < split.outer && bytes > 0; ++outer) {
    std::memcpy(to, from, bytes);
    to += bytes;
    from += static_cast<size_t>(split.extent) * stride;
  }
  return slice;
}

absl::Status ApplyElements(ElementOp op, const Tensor& values, Tensor* to) {
  if (!SameType(values, *to)) return Differ(*to, values);
  if (op == ElementOp::kDiv) RETURN_IF_ERROR(CheckDivisors(values));
  if (op == ElementOp::kSet) {
    if (values.elements() > 0) std::memcpy(to->mutable_data(), values.data(), values.bytes());
    return absl::OkStatus();
  }
  if (Is16Bit(values.dtype())) {
    Tensor wide = CastTensor(*to, DType::kFloat32);
    RETURN_IF_ERROR(ApplyElements(op, CastTensor(values, DType::kFloat32), &wide));
    return ApplyElements(ElementOp::kSet, CastTensor(wide, to->dtype()), to);
  }
  WithNumericType(values.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto from = values.values<T>();
    CombineSpan(op, from.data(), from.size(), to->mutable_values<T>().data());
  });
  return absl::OkStatus();
}

absl::Status ApplyRows(ElementOp op, const Tensor& indices, const Tensor& values, Tensor* to) {
  Shape wanted = to->shape();
  if (wanted.empty()) return absl::InvalidArgumentError("a scalar has no rows");
  const int64_t rows = std::exchange(wanted[0], indices.elements());
  if (indices.is_text() || IsFloating(indices.dtype()) || indices.rank() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows are given as ", indices.TypeText(), "; allowed is int64 [n]"));
  }
  if (values.is_text() || values.dtype() != to->dtype() || values.shape() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat("values of the rows are ", values.TypeText(),
                                                   "; expected ", DTypeName(to->dtype()), " ",
                                                   ShapeText(wanted)));
  }
  if (op == ElementOp::kDiv) RETURN_IF_ERROR(CheckDivisors(values));
  const Tensor wide = CastTensor(indices, DType::kInt64);
  for (const int64_t row : wide.values<int64_t>()) {
    if (row < 0 || row >= rows) {
      return absl::InvalidArgumentError(absl::StrCat("row ", row, " is outside [0, ", rows, ")"));
    }
  }
  if (Is16Bit(to->dtype())) {
    Tensor floats = CastTensor(*to, DType::kFloat32);
    RETURN_IF_ERROR(ApplyRows(op, indices, CastTensor(values, DType::kFloat32), &floats));
    return ApplyElements(ElementOp::kSet, CastTensor(floats, to->dtype()), to);
  }
  const auto width = static_cast<size_t>(RowWidth(to->shape()));
  WithNumericType(to->dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = values.values<T>().data();
    T* all = to->mutable_values<T>().data();
    for (const int64_t row : wide.values<int64_t>()) {
      CombineSpan(op, from, width, all + static_cast<size_t>(row) * width);
      from += width;
    }
  });
  return absl::OkStatus();
}

}  // namespace cairn
