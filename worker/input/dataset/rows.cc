#include "worker/input/dataset/rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

// The number of rows to allocate before it is known whether so many follow.
constexpr int64_t kFirstRows = 1024;

Shape WithRows(int64_t rows, absl::Span<const int64_t> row_shape) {
  Shape shape;
  shape.reserve(row_shape.size() + 1);
  shape.push_back(rows);
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  return shape;
}

size_t RowElements(const Tensor& tensor) { return static_cast<size_t>(RowWidth(tensor.shape())); }

bool SameType(const Tensor& a, const Tensor& b) {
  return a.is_text() == b.is_text() && (a.is_text() || a.dtype() == b.dtype());
}

absl::Span<const int64_t> RowShape(const Tensor& tensor) {
  return absl::MakeConstSpan(tensor.shape()).subspan(1);
}

absl::Status CountsDiffer(absl::string_view who, size_t found, size_t first) {
  return InvalidArgument(who, ": an element of ", found, " components after one of ", first,
                         "; all must have as many");
}

Tensor ConcatColumn(absl::Span<const Element> parts, size_t column, int64_t rows) {
  const Tensor& first = parts.front()[column];
  Shape shape = WithRows(rows, RowShape(first));
  if (first.is_text()) {
    std::vector<std::string> texts;
    texts.reserve(static_cast<size_t>(rows) * RowElements(first));
    for (const Element& part : parts) {
      const auto some = part[column].texts();
      texts.insert(texts.end(), some.begin(), some.end());
    }
    return Tensor::Texts(std::move(shape), std::move(texts));
  }
  Tensor joined = Tensor::Uninitialized(first.dtype(), std::move(shape));
  char* into = static_cast<char*>(joined.mutable_data());
  for (const Element& part : parts) {
    const size_t bytes = part[column].bytes();
    if (bytes > 0) std::memcpy(into, part[column].data(), bytes);
    into += bytes;
  }
  return joined;
}

}  // namespace

absl::StatusOr<int64_t> BatchRows(const Element& batch, absl::string_view who) {
  if (batch.empty()) return InvalidArgument(who, ": an element without components");
  for (const Tensor& component : batch) {
    if (component.rank() == 0) {
      return InvalidArgument(who, ": a component is a scalar (", component.TypeText(),
                             "); elements must be batches: call Batch before");
    }
    if (component.shape()[0] != batch.front().shape()[0]) {
      return InvalidArgument(who, ": components of ", batch.front().TypeText(), " and ",
                             component.TypeText(),
                             "; the first extent is the batch's rows and must be the same");
    }
  }
  return batch.front().shape()[0];
}

Element SliceRows(const Element& batch, int64_t begin, int64_t end) {
  Element slice;
  slice.reserve(batch.size());
  for (const Tensor& component : batch) {
    if (begin == 0 && end == component.shape()[0]) {
      slice.push_back(component);
      continue;
    }
    slice.push_back(component.Slice(begin * RowWidth(component.shape()),
                                    WithRows(end - begin, RowShape(component))));
  }
  return slice;
}

Element TakeRow(const Element& batch, int64_t row) {
  Element taken;
  taken.reserve(batch.size());
  for (const Tensor& component : batch) {
    const auto shape = RowShape(component);
    taken.push_back(
        component.Slice(row * RowWidth(component.shape()), Shape(shape.begin(), shape.end())));
  }
  return taken;
}

absl::StatusOr<Element> ConcatRows(absl::Span<const Element> parts, absl::string_view who) {
  const Element& first = parts.front();
  if (parts.size() == 1) return first;
  int64_t rows = 0;
  for (const Element& part : parts) {
    if (part.size() != first.size()) return CountsDiffer(who, part.size(), first.size());
    for (size_t i = 0; i < part.size(); ++i) {
      if (SameType(part[i], first[i]) && RowShape(part[i]) == RowShape(first[i])) continue;
      return InvalidArgument(
          who, ": rows of ", first[i].TypeText(), " and of ", part[i].TypeText(),
          " cannot be in one batch; PaddedBatch makes rows as long as each other");
    }
    rows += part.front().shape()[0];
  }
  Element joined;
  for (size_t i = 0; i < first.size(); ++i) joined.push_back(ConcatColumn(parts, i, rows));
  return joined;
}

absl::StatusOr<Element> NoRows(const ElementSpec& spec, absl::string_view who) {
  Element none;
  for (const TensorSpec& component : spec) {
    if (!component.shape.has_value() || component.shape->empty()) {
      return FailedPrecondition(who, ": an empty batch of \"", component.ToText(),
                                "\" cannot be made; elements must be batches of known rank");
    }
    Shape shape = *component.shape;
    shape[0] = 0;
    for (int64_t& extent : shape) extent = std::max<int64_t>(extent, 0);
    none.push_back(component.text ? Tensor::Texts(std::move(shape), {})
                                  : Tensor::Zeros(component.dtype, std::move(shape)));
  }
  return none;
}

RowStacker::RowStacker(int64_t rows, std::string who)
    : who_(std::move(who)), expected_rows_(rows) {}

absl::Status RowStacker::Start(const Element& row) {
  capacity_ = std::min(expected_rows_, kFirstRows);
  columns_.clear();
  columns_.reserve(row.size());
  for (const Tensor& component : row) {
    Column& column = columns_.emplace_back();
    column.text = component.is_text();
    column.row_shape = component.shape();
    if (column.text) continue;
    if (!component.device().is_cpu()) {
      return InvalidArgument(who_, ": a component is on ", component.device().text(),
                             "; batches are made on a CPU");
    }
    column.row_bytes = component.bytes();
    // Allocates the expected number of rows if it is small; otherwise grows with the rows added.
    column.values =
        Tensor::Uninitialized(component.dtype(), WithRows(capacity_, component.shape()));
  }
  return absl::OkStatus();
}

absl::Status RowStacker::Check(const Element& row) const {
  if (row.size() != columns_.size()) return CountsDiffer(who_, row.size(), columns_.size());
  for (size_t i = 0; i < row.size(); ++i) {
    const Column& column = columns_[i];
    const bool same_type =
        row[i].is_text() == column.text && (column.text || row[i].dtype() == column.values.dtype());
    if (same_type && row[i].shape() == column.row_shape) continue;
    const TensorSpec first = column.text
                                 ? TensorSpec::Texts(column.row_shape)
                                 : TensorSpec::Numbers(column.values.dtype(), column.row_shape);
    return InvalidArgument(who_, ": component ", i, " of element ", rows_, " of the batch is ",
                           row[i].TypeText(), ", that of the first one ", first.ToText(),
                           "; PaddedBatch takes shapes that differ");
  }
  return absl::OkStatus();
}

void RowStacker::Grow() {
  capacity_ = std::min(capacity_ * 2, std::max(expected_rows_, rows_ + 1));
  for (Column& column : columns_) {
    if (column.text) continue;
    Tensor larger =
        Tensor::Uninitialized(column.values.dtype(), WithRows(capacity_, column.row_shape));
    const size_t used = static_cast<size_t>(rows_) * column.row_bytes;
    if (used > 0) std::memcpy(larger.mutable_data(), column.values.data(), used);
    column.values = std::move(larger);
  }
}

absl::Status RowStacker::Add(const Element& row) {
  if (rows_ == 0) {
    RETURN_IF_ERROR(Start(row));
  } else {
    RETURN_IF_ERROR(Check(row));
  }
  if (rows_ == capacity_) Grow();
  for (size_t i = 0; i < row.size(); ++i) {
    Column& column = columns_[i];
    if (column.text) {
      const auto texts = row[i].texts();
      column.texts.insert(column.texts.end(), texts.begin(), texts.end());
    } else if (column.row_bytes > 0) {
      char* const into = static_cast<char*>(column.values.mutable_data());
      std::memcpy(into + static_cast<size_t>(rows_) * column.row_bytes, row[i].data(),
                  column.row_bytes);
    }
  }
  ++rows_;
  return absl::OkStatus();
}

Element RowStacker::Finish() {
  Element batch;
  batch.reserve(columns_.size());
  for (Column& column : columns_) {
    Shape shape = WithRows(rows_, column.row_shape);
    if (column.text) {
      batch.push_back(Tensor::Texts(std::move(shape), std::move(column.texts)));
    } else if (rows_ == capacity_) {
      batch.push_back(std::move(column.values));
    } else {
      batch.push_back(column.values.Slice(0, std::move(shape)));
    }
  }
  columns_.clear();
  rows_ = 0;
  return batch;
}

}  // namespace cairn
