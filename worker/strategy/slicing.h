// The index language of arrays in Python: v[2], v[1:7:2], v[::-1], v[newaxis, 2:4], v[..., 0].
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor.h"

namespace cairn {

// start:stop:step. Negative bounds count from the end; bounds beyond the axis are cut to it; what
// is not given is the end that the step comes from or goes to. `step` is not 0.
struct Slice {
  std::optional<int64_t> start = {};
  std::optional<int64_t> stop = {};
  std::optional<int64_t> step = {};
};
struct NewAxis {};   // an axis of extent 1
struct Ellipsis {};  // as many whole axes as the other terms leave over; once
// A number takes one position of its axis, which the result no longer has.
using IndexTerm = std::variant<int64_t, Slice, NewAxis, Ellipsis>;

// Positions first, first + step, … of one axis, `count` of them.
struct AxisRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t step = 1;
};

// An index, worked out for one shape.
struct ResolvedIndex {
  std::vector<AxisRange> axes = {};  // one for each axis of the array
  Shape result = {};                 // without axes of numbers, with new ones
};

// Terms beyond those given take whole axes. kInvalidArgument: a number outside its axis, a step of
// 0, more terms than axes, two ellipses.
absl::StatusOr<ResolvedIndex> ResolveIndex(absl::Span<const int64_t> shape,
                                           absl::Span<const IndexTerm> terms);

// What `index`, resolved for the shape of `tensor`, takes of it, with memory of its own.
absl::StatusOr<Tensor> TakeIndex(const Tensor& tensor, const ResolvedIndex& index);

// Where to take elements: a mask over the first axes of an array.
struct BooleanMask {
  Shape shape = {};
  std::vector<bool> chosen = {};  // row-major, as many as `shape` has elements
};

// The chosen elements one after the other: [number chosen, extents after the mask's].
// kInvalidArgument: a mask of rank 0, or whose shape is not how that of `tensor` begins.
absl::StatusOr<Tensor> TakeMask(const Tensor& tensor, const BooleanMask& mask);

}  // namespace cairn
