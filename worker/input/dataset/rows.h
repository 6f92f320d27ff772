// Operations on rows of elements: stack, cut and join along axis 0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/input/dataset/element.h"

namespace cairn {

bool SameType(const Tensor& a, const Tensor& b);
// The spec of one row of batches of this spec; scalars and unknown ranks do not change.
ElementSpec RowSpec(ElementSpec batch);
// The number of rows of all components of a batch. kInvalidArgument, naming `who`: no components, a
// scalar, or differing numbers.
absl::StatusOr<int64_t> BatchRows(const Element& batch, absl::string_view who);

// Rows [begin, end) of `batch`, which must have them: numbers are a view of its memory, texts a
// copy.
Element SliceRows(const Element& batch, int64_t begin, int64_t end);
// Row `row` without its axis 0. Numbers are a view of the batch's memory, texts a copy.
Element TakeRow(const Element& batch, int64_t row);
// All rows of `parts` (one or more). kInvalidArgument: the parts differ in the number of
// components, in type or in the shape of a row.
absl::StatusOr<Element> ConcatRows(absl::Span<const Element> parts, absl::string_view who);
// A batch without rows; varying extents of `spec` become 0. kFailedPrecondition, naming `who`: a
// component is a scalar, or its rank is unknown.
absl::StatusOr<Element> NoRows(const ElementSpec& spec, absl::string_view who);

// Gathers elements into a batch; each is copied once. Thread safety: none.
class RowStacker {
 public:
  // `rows` > 0: the expected number of rows; more may be added.
  RowStacker(int64_t rows, std::string who);

  // kInvalidArgument: the row differs from the first in the number of components, in type or in
  // shape.
  absl::Status Add(const Element& row);
  int64_t rows() const { return rows_; }
  // The batch; the stacker is empty afterwards. At least one row must have been added.
  Element Finish();

 private:
  struct Column {
    Tensor values;  // numbers: [capacity_, row shape]
    std::vector<std::string> texts;
    bool text = false;
    Shape row_shape;
    size_t row_bytes = 0;
  };
  absl::Status Start(const Element& row);
  absl::Status Check(const Element& row) const;
  void Grow();

  const std::string who_;
  const int64_t expected_rows_;
  int64_t capacity_ = 0;
  int64_t rows_ = 0;
  std::vector<Column> columns_;
};

}  // namespace cairn
