#include <algorithm>
#include <cstring>
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/rows.h"
#include "worker/input/dataset/step_node.h"

namespace cairn {
namespace {

std::optional<ElementSpec> BatchSpec(const std::optional<ElementSpec>& rows, int64_t batch_size,
                                     bool drop_remainder) {
  std::optional<ElementSpec> spec = rows;
  if (!spec.has_value()) return spec;
  for (TensorSpec& component : *spec) {
    if (!component.shape.has_value()) continue;
    component.shape->insert(component.shape->begin(), drop_remainder ? batch_size : -1);
  }
  return spec;
}

int64_t Batches(int64_t elements, int64_t batch_size, bool drop_remainder) {
  if (!IsKnown(elements)) return elements;
  return elements / batch_size + (!drop_remainder && elements % batch_size != 0 ? 1 : 0);
}

class BatchNode : public StepNode {
 public:
  BatchNode(NodePtr input, int64_t batch_size, bool drop_remainder, bool padded)
      : StepNode(std::move(input)),
        batch_size_(batch_size),
        drop_remainder_(drop_remainder),
        padded_(padded),
        spec_(BatchSpec(this->input().spec(), batch_size, drop_remainder)) {}

  std::string name() const override { return padded_ ? "PaddedBatch" : "Batch"; }
  int64_t cardinality() const override {
    return Batches(input().cardinality(), batch_size_, drop_remainder_);
  }
  const std::optional<ElementSpec>& spec() const override { return spec_; }
  int64_t batch_size() const override { return batch_size_; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<BatchNode>(inputs.front(), batch_size_, drop_remainder_, padded_);
  }

 private:
  IteratorPtr Iterate(IteratorPtr rows, const IterationContext&) const override;

  const int64_t batch_size_;
  const bool drop_remainder_;
  const bool padded_;
  const std::optional<ElementSpec> spec_;
};

// Copies `from`, of shape `from_shape`, into the corner at the origin of `into`, of `into_shape`.
// The extents of `into_shape` are at least as large.
template <typename Copy>
void CopyCorner(absl::Span<const int64_t> from_shape, absl::Span<const int64_t> into_shape,
                size_t from, size_t into, const Copy& copy) {
  if (from_shape.size() <= 1) {
    copy(from, into, from_shape.empty() ? 1 : static_cast<size_t>(from_shape[0]));
    return;
  }
  const auto from_width = static_cast<size_t>(RowWidth(from_shape));
  const auto into_width = static_cast<size_t>(RowWidth(into_shape));
  for (size_t i = 0; i < static_cast<size_t>(from_shape[0]); ++i) {
    CopyCorner(from_shape.subspan(1), into_shape.subspan(1), from + i * from_width,
               into + i * into_width, copy);
  }
}

absl::StatusOr<Tensor> PadColumn(absl::Span<const Element> rows, size_t column) {
  const Tensor& first = rows.front()[column];
  Shape widest = first.shape();
  for (const Element& row : rows) {
    const Tensor& value = row[column];
    if (value.rank() != first.rank() || !SameType(value, first)) {
      return InvalidArgument("PaddedBatch: component ", column, " is ", first.TypeText(), " and ",
                             value.TypeText(), " in one batch; rank and type must agree");
    }
    for (size_t i = 0; i < widest.size(); ++i) widest[i] = std::max(widest[i], value.shape()[i]);
  }
  Shape shape = widest;
  shape.insert(shape.begin(), static_cast<int64_t>(rows.size()));
  ASSIGN_OR_RETURN(const int64_t count, ElementCount(shape));
  const auto width = static_cast<size_t>(count) / rows.size();
  if (first.is_text()) {
    std::vector<std::string> texts(static_cast<size_t>(count));
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto from = rows[r][column].texts();
      CopyCorner(rows[r][column].shape(), widest, 0, r * width,
                 [&texts, from](size_t begin, size_t into, size_t n) {
                   std::copy_n(from.begin() + static_cast<ptrdiff_t>(begin), n,
                               texts.begin() + static_cast<ptrdiff_t>(into));
                 });
    }
    return Tensor::Texts(std::move(shape), std::move(texts));
  }
  Tensor padded = Tensor::Zeros(first.dtype(), std::move(shape));
  const size_t size = DTypeBytes(first.dtype());
  char* const base = static_cast<char*>(padded.mutable_data());
  for (size_t r = 0; r < rows.size(); ++r) {
    const char* const from = static_cast<const char*>(rows[r][column].data());
    CopyCorner(rows[r][column].shape(), widest, 0, r * width,
               [base, from, size](size_t begin, size_t into, size_t n) {
                 if (n > 0) std::memcpy(base + into * size, from + begin * size, n * size);
               });
  }
  return padded;
}

// Makes one batch of `rows`, which are not empty.
absl::Status Pad(const std::vector<Element>& rows, Element* batch) {
  batch->clear();
  for (const Element& row : rows) {
    if (row.size() == rows.front().size()) continue;
    return InvalidArgument("PaddedBatch: elements of ", row.size(), " and ", rows.front().size(),
                           " components");
  }
  for (size_t column = 0; column < rows.front().size(); ++column) {
    ASSIGN_OR_RETURN(Tensor padded, PadColumn(rows, column));
    batch->push_back(std::move(padded));
  }
  return absl::OkStatus();
}

IteratorPtr BatchNode::Iterate(IteratorPtr rows, const IterationContext&) const {
  if (padded_) {
    return IterateBy([rows = std::move(rows), batch_size = static_cast<size_t>(batch_size_),
                      drop_remainder = drop_remainder_, held = std::vector<Element>(),
                      ended = false](Element* element) mutable -> absl::StatusOr<bool> {
      while (!ended && held.size() < batch_size) {
        ASSIGN_OR_RETURN(const bool more, rows->Next(element));
        ended = !more;
        if (more) held.push_back(std::move(*element));
      }
      const std::vector<Element> batch = std::exchange(held, {});
      if (batch.empty() || (batch.size() < batch_size && drop_remainder)) return false;
      RETURN_IF_ERROR(Pad(batch, element));
      return true;
    });
  }
  return IterateBy([rows = std::move(rows), batch_size = batch_size_,
                    drop_remainder = drop_remainder_, stacker = RowStacker(batch_size_, "Batch"),
                    ended = false](Element* element) mutable -> absl::StatusOr<bool> {
    while (!ended && stacker.rows() < batch_size) {
      ASSIGN_OR_RETURN(const bool more, rows->Next(element));
      ended = !more;
      if (more) RETURN_IF_ERROR(stacker.Add(*element));
    }
    if (stacker.rows() == 0 || (stacker.rows() < batch_size && drop_remainder)) return false;
    *element = stacker.Finish();
    return true;
  });
}

class UnbatchNode : public StepNode {
 public:
  explicit UnbatchNode(NodePtr input) : StepNode(std::move(input)), spec_(this->input().spec()) {
    if (spec_.has_value()) spec_ = RowSpec(*std::move(spec_));
  }
  std::string name() const override { return "Unbatch"; }
  int64_t cardinality() const override {
    const int64_t batches = input().cardinality();
    return batches == 0 || batches == kInfiniteCardinality ? batches : kUnknownCardinality;
  }
  const std::optional<ElementSpec>& spec() const override { return spec_; }
  int64_t batch_size() const override { return -1; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<UnbatchNode>(inputs.front());
  }

 private:
  IteratorPtr Iterate(IteratorPtr batches, const IterationContext&) const override {
    return IterateBy([batches = std::move(batches), batch = Element(), row = int64_t{0},
                      rows = int64_t{0}](Element* element) mutable -> absl::StatusOr<bool> {
      while (row == rows) {
        ASSIGN_OR_RETURN(const bool more, batches->Next(&batch));
        if (!more) return false;
        row = rows = 0;
        ASSIGN_OR_RETURN(rows, BatchRows(batch, "Unbatch"));
      }
      *element = TakeRow(batch, row++);
      return true;
    });
  }

  std::optional<ElementSpec> spec_;
};

}  // namespace

Dataset Dataset::Batch(int64_t batch_size, bool drop_remainder) const {
  if (node_ == nullptr) return *this;
  if (batch_size < 1) return Refused("Batch", "batch_size", batch_size, "1 or more");
  return With(std::make_shared<BatchNode>(node_, batch_size, drop_remainder, /*padded=*/false));
}

Dataset Dataset::PaddedBatch(int64_t batch_size, bool drop_remainder) const {
  if (node_ == nullptr) return *this;
  if (batch_size < 1) return Refused("PaddedBatch", "batch_size", batch_size, "1 or more");
  return With(std::make_shared<BatchNode>(node_, batch_size, drop_remainder, /*padded=*/true));
}

Dataset Dataset::Unbatch() const {
  return node_ == nullptr ? *this : With(std::make_shared<UnbatchNode>(node_));
}

}  // namespace cairn
