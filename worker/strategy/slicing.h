// Indexing as in Python arrays: v[2], v[1:7:2], v[::-1], v[newaxis, 2:4], v[..., 0].
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor.h"

namespace cairn {

// start:stop:step. Negative bounds count from the end; bounds beyond the axis are clamped to it. A
// missing bound is the end of the axis at that side of the walk. `step` must not be 0.
struct Slice {
  std::optional<int64_t> start = {};
  std::optional<int64_t> stop = {};
  std::optional<int64_t> step = {};
};
struct NewAxis {};   // an axis of extent 1
struct Ellipsis {};  // as many whole axes as the other terms leave; at most once
// A number selects one position of its axis and removes the axis from the result.
using IndexTerm = std::variant<int64_t, Slice, NewAxis, Ellipsis>;

// Positions first, first + step, … of one axis, `count` of them.
struct AxisRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t step = 1;
};

// An index resolved for one shape.
struct ResolvedIndex {
  std::vector<AxisRange> axes = {};  // one for each axis of the array
  Shape result = {};                 // without the axes of numbers, with the new axes
};

// Axes without a term are taken whole. kInvalidArgument: a number outside its axis, a step of 0,
// more terms than axes, two ellipses.
absl::StatusOr<ResolvedIndex> ResolveIndex(absl::Span<const int64_t> shape,
                                           absl::Span<const IndexTerm> terms);

// The elements of `tensor` that `index` selects, in new memory. `index` is resolved for its shape.
absl::StatusOr<Tensor> TakeIndex(const Tensor& tensor, const ResolvedIndex& index);

// A mask over the first axes of an array; selects elements.
struct BooleanMask {
  Shape shape = {};
  std::vector<bool> chosen = {};  // row-major, one entry for each element of `shape`
};

// The selected elements in order: [number selected, extents after the mask's]. kInvalidArgument: a
// mask of rank 0, or a mask whose shape is not a prefix of the shape of `tensor`.
absl::StatusOr<Tensor> TakeMask(const Tensor& tensor, const BooleanMask& mask);

}  // namespace cairn
