// Shapes, row-major. A dense variable's rows run along axis 0; a scalar has one row of one element.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cairn {

using Shape = std::vector<int64_t>;

// Product of all extents (1 for a scalar). kInvalidArgument: a negative extent, or the product of
// the extents other than 0 is above 2^53.
absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> shape);
// Extent of axis 0; 1 for a scalar.
int64_t RowCount(absl::Span<const int64_t> shape);
// Elements of one row: the product of the extents after axis 0. `shape` must be valid.
int64_t RowWidth(absl::Span<const int64_t> shape);
// "[784, 128]"; "[]" for a scalar.
std::string ShapeText(absl::Span<const int64_t> shape);

}  // namespace cairn
