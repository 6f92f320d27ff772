#include "worker/strategy/slicing.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"

namespace cairn {
namespace {

// A bound as a position in [low, high], where high - low is the extent.
int64_t Position(int64_t bound, int64_t extent, int64_t low, int64_t high) {
  if (bound < 0) bound = std::max(bound, -extent - 1) + extent;
  return std::clamp(bound, low, high);
}

absl::StatusOr<AxisRange> RangeOf(const Slice& slice, int64_t extent, size_t axis) {
  const int64_t step = slice.step.value_or(1);
  if (step == 0) {
    return InvalidArgument("index of axis ", axis, ": the step of a slice is 0; it must not be");
  }
  // With a negative step, an open slice ends at the position before the first element.
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? extent : extent - 1;
  const int64_t from = step > 0 ? low : high;
  const int64_t to = step > 0 ? high : low;
  const int64_t first = slice.start ? Position(*slice.start, extent, low, high) : from;
  const int64_t end = slice.stop ? Position(*slice.stop, extent, low, high) : to;
  const int64_t distance = step > 0 ? end - first : first - end;
  if (distance <= 0) return AxisRange{.first = 0, .count = 0, .step = step};
  // Avoids -step, which overflows for the smallest step.
  const int64_t beyond = step > 0 ? (distance - 1) / step : -((distance - 1) / step);
  return AxisRange{.first = first, .count = 1 + beyond, .step = step};
}

absl::StatusOr<AxisRange> RangeOf(int64_t number, int64_t extent, size_t axis) {
  if (number < -extent || number >= extent) {
    return InvalidArgument("index of axis ", axis, ": ", number, " is outside [", -extent, ", ",
                           extent, ")");
  }
  return AxisRange{.first = number < 0 ? number + extent : number, .count = 1, .step = 1};
}

bool IsWhole(const AxisRange& range, int64_t extent) {
  return range.first == 0 && range.count == extent && (range.step == 1 || extent <= 1);
}

class Copier {
 public:
  Copier(const Tensor& from, const ResolvedIndex& index, Tensor* to)
      : index_(index),
        from_(static_cast<const std::byte*>(from.data())),
        to_(static_cast<std::byte*>(to->mutable_data())),
        strides_(from.shape().size() + 1) {
    strides_.back() = static_cast<int64_t>(DTypeBytes(from.dtype()));
    whole_from_ = from.shape().size();
    for (size_t axis = from.shape().size(); axis-- > 0;) {
      strides_[axis] = strides_[axis + 1] * from.shape()[axis];
      const bool inner_whole = whole_from_ == axis + 1;
      if (inner_whole && IsWhole(index.axes[axis], from.shape()[axis])) whole_from_ = axis;
    }
  }

  void Run() { CopyAxis(0, from_); }

 private:
  void CopyAxis(size_t axis, const std::byte* from) {
    if (axis == whole_from_) {
      std::memcpy(to_, from, static_cast<size_t>(strides_[axis]));
      to_ += strides_[axis];
      return;
    }
    const AxisRange& range = index_.axes[axis];
    for (int64_t i = 0; i < range.count; ++i) {
      CopyAxis(axis + 1, from + (range.first + i * range.step) * strides_[axis + 1]);
    }
  }

  const ResolvedIndex& index_;
  const std::byte* const from_;
  std::byte* to_;
  // strides_[axis]: bytes of all axes from `axis` on.
  std::vector<int64_t> strides_;
  size_t whole_from_ = 0;  // this axis and all later ones are taken whole
};

// Number of terms that take an axis each. kInvalidArgument: too many, or two ellipses.
absl::StatusOr<size_t> CountAxes(absl::Span<const int64_t> shape,
                                 absl::Span<const IndexTerm> terms) {
  size_t taking = 0;
  size_t ellipses = 0;
  for (const IndexTerm& term : terms) {
    if (std::holds_alternative<Ellipsis>(term)) ++ellipses;
    if (std::holds_alternative<int64_t>(term) || std::holds_alternative<Slice>(term)) ++taking;
  }
  if (ellipses > 1) {
    return InvalidArgument("index with ", ellipses, " ellipses; at most one is allowed");
  }
  if (taking > shape.size()) {
    return InvalidArgument("index of ", taking, " axes into shape ", ShapeText(shape),
                           ", which has ", shape.size());
  }
  return taking;
}

}  // namespace

absl::StatusOr<ResolvedIndex> ResolveIndex(absl::Span<const int64_t> shape,
                                           absl::Span<const IndexTerm> terms) {
  ASSIGN_OR_RETURN(const size_t taking, CountAxes(shape, terms));
  ResolvedIndex index;
  const auto take_whole = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const int64_t extent = shape[index.axes.size()];
      index.axes.push_back({.first = 0, .count = extent, .step = 1});
      index.result.push_back(extent);
    }
  };
  for (const IndexTerm& term : terms) {
    const size_t axis = index.axes.size();
    if (const auto* number = std::get_if<int64_t>(&term)) {
      ASSIGN_OR_RETURN(const AxisRange range, RangeOf(*number, shape[axis], axis));
      index.axes.push_back(range);
    } else if (const auto* slice = std::get_if<Slice>(&term)) {
      ASSIGN_OR_RETURN(const AxisRange range, RangeOf(*slice, shape[axis], axis));
      index.axes.push_back(range);
      index.result.push_back(range.count);
    } else if (std::holds_alternative<NewAxis>(term)) {
      index.result.push_back(1);
    } else {
      take_whole(shape.size() - taking);
    }
  }
  take_whole(shape.size() - index.axes.size());
  return index;
}

absl::StatusOr<Tensor> TakeIndex(const Tensor& tensor, const ResolvedIndex& index) {
  ASSIGN_OR_RETURN(const Tensor host, HostTensor(tensor));
  Tensor taken = Tensor::Uninitialized(tensor.dtype(), index.result, host.device());
  if (taken.elements() > 0) Copier(host, index, &taken).Run();
  if (tensor.device().is_cpu()) return taken;
  return CopyTensor(taken, tensor.device());
}

absl::StatusOr<Tensor> TakeMask(const Tensor& tensor, const BooleanMask& mask) {
  const size_t rank = mask.shape.size();
  const bool fits = rank > 0 && rank <= tensor.shape().size() &&
                    std::equal(mask.shape.begin(), mask.shape.end(), tensor.shape().begin());
  ASSIGN_OR_RETURN(const int64_t elements, ElementCount(mask.shape));
  if (!fits || elements != static_cast<int64_t>(mask.chosen.size())) {
    return InvalidArgument("boolean mask of shape ", ShapeText(mask.shape), " with ",
                           mask.chosen.size(), " elements for shape ", ShapeText(tensor.shape()),
                           ", which must begin with the mask's");
  }
  // Treats the masked axes as one axis and takes its chosen rows.
  Shape shape(tensor.shape().begin() + static_cast<std::ptrdiff_t>(rank), tensor.shape().end());
  shape.insert(shape.begin(), elements);
  std::vector<int64_t> rows;
  for (size_t i = 0; i < mask.chosen.size(); ++i) {
    if (mask.chosen[i]) rows.push_back(static_cast<int64_t>(i));
  }
  return TakeRows(tensor.Reshaped(shape), rows);
}

}  // namespace cairn
