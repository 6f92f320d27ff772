#include "common/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"

namespace cairn {

absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> shape) {
  constexpr int64_t kMaxElements = int64_t{1} << 53;  // above it a double cannot count
  // Other extents are checked even if one is 0, because rows and row elements are also counted
  // separately.
  int64_t count = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      return InvalidArgument("shape ", ShapeText(shape), ": extent ", extent, " is negative");
    }
    if (extent == 0) {
      empty = true;
      continue;
    }
    if (count > kMaxElements / extent) {
      return InvalidArgument("shape ", ShapeText(shape),
                             " has more than 2^53 elements (ignoring extents of 0)");
    }
    count *= extent;
  }
  return empty ? 0 : count;
}

int64_t RowCount(absl::Span<const int64_t> shape) { return shape.empty() ? 1 : shape[0]; }

int64_t RowWidth(absl::Span<const int64_t> shape) {
  int64_t width = 1;
  for (size_t axis = 1; axis < shape.size(); ++axis) width *= shape[axis];
  return width;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace cairn
