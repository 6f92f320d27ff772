#include <algorithm>
#include <cstring>
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/rows.h"
#include "worker/input/dataset/steps.h"

namespace cairn::steps {
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

class BatchNode : public DatasetNode {
 public:
  BatchNode(NodePtr input, int64_t batch_size, bool drop_remainder, bool padded)
      : DatasetNode({std::move(input)}),
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
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto rows, input().MakeIterator(context));
    if (padded_) return std::make_unique<PaddedIterator>(std::move(rows), *this);
    return std::make_unique<Iterator>(std::move(rows), *this);
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    Iterator(std::unique_ptr<DatasetIterator> rows, const BatchNode& node)
        : rows_(std::move(rows)),
          batch_size_(node.batch_size_),
          drop_remainder_(node.drop_remainder_),
          stacker_(node.batch_size_, "Batch") {}
    absl::StatusOr<bool> Next(Element* element) override {
      while (!ended_ && stacker_.rows() < batch_size_) {
        ASSIGN_OR_RETURN(const bool more, rows_->Next(element));
        ended_ = !more;
        if (more) RETURN_IF_ERROR(stacker_.Add(*element));
      }
      if (stacker_.rows() == 0 || (stacker_.rows() < batch_size_ && drop_remainder_)) return false;
      *element = stacker_.Finish();
      return true;
    }

   private:
    const std::unique_ptr<DatasetIterator> rows_;
    const int64_t batch_size_;
    const bool drop_remainder_;
    RowStacker stacker_;
    bool ended_ = false;
  };

  class PaddedIterator : public DatasetIterator {
   public:
    PaddedIterator(std::unique_ptr<DatasetIterator> rows, const BatchNode& node)
        : rows_(std::move(rows)),
          batch_size_(node.batch_size_),
          drop_remainder_(node.drop_remainder_) {}
    absl::StatusOr<bool> Next(Element* element) override;

   private:
    const std::unique_ptr<DatasetIterator> rows_;
    const int64_t batch_size_;
    const bool drop_remainder_;
    std::vector<Element> held_;
    bool ended_ = false;
  };

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
    if (value.rank() != first.rank() || value.is_text() != first.is_text() ||
        (!value.is_text() && value.dtype() != first.dtype())) {
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

absl::StatusOr<bool> BatchNode::PaddedIterator::Next(Element* element) {
  while (!ended_ && static_cast<int64_t>(held_.size()) < batch_size_) {
    ASSIGN_OR_RETURN(const bool more, rows_->Next(element));
    ended_ = !more;
    if (more) held_.push_back(std::move(*element));
  }
  const std::vector<Element> rows = std::exchange(held_, {});
  if (rows.empty() || (static_cast<int64_t>(rows.size()) < batch_size_ && drop_remainder_)) {
    return false;
  }
  element->clear();
  for (const Element& row : rows) {
    if (row.size() == rows.front().size()) continue;
    return InvalidArgument("PaddedBatch: elements of ", row.size(), " and ", rows.front().size(),
                           " components");
  }
  for (size_t column = 0; column < rows.front().size(); ++column) {
    ASSIGN_OR_RETURN(Tensor padded, PadColumn(rows, column));
    element->push_back(std::move(padded));
  }
  return true;
}

class UnbatchNode : public DatasetNode {
 public:
  explicit UnbatchNode(NodePtr input)
      : DatasetNode({std::move(input)}), spec_(RowSpec(this->input().spec())) {}
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
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto batches, input().MakeIterator(context));
    return std::make_unique<Iterator>(std::move(batches));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(std::unique_ptr<DatasetIterator> batches) : batches_(std::move(batches)) {}
    absl::StatusOr<bool> Next(Element* element) override {
      while (row_ == rows_) {
        ASSIGN_OR_RETURN(const bool more, batches_->Next(&batch_));
        if (!more) return false;
        row_ = rows_ = 0;
        ASSIGN_OR_RETURN(rows_, BatchRows(batch_, "Unbatch"));
      }
      *element = TakeRow(batch_, row_++);
      return true;
    }

   private:
    const std::unique_ptr<DatasetIterator> batches_;
    Element batch_;
    int64_t row_ = 0;
    int64_t rows_ = 0;
  };

  static std::optional<ElementSpec> RowSpec(std::optional<ElementSpec> spec) {
    if (!spec.has_value()) return spec;
    for (TensorSpec& component : *spec) {
      if (component.shape.has_value() && !component.shape->empty()) {
        component.shape->erase(component.shape->begin());
      }
    }
    return spec;
  }

  const std::optional<ElementSpec> spec_;
};

}  // namespace

NodePtr Batch(NodePtr input, int64_t batch_size, bool drop_remainder) {
  return std::make_shared<BatchNode>(std::move(input), batch_size, drop_remainder, false);
}

NodePtr PaddedBatch(NodePtr input, int64_t batch_size, bool drop_remainder) {
  return std::make_shared<BatchNode>(std::move(input), batch_size, drop_remainder, true);
}

NodePtr Unbatch(NodePtr input) { return std::make_shared<UnbatchNode>(std::move(input)); }

}  // namespace cairn::steps
