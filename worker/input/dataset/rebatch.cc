#include "worker/input/dataset/rebatch.h"

#include <algorithm>
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/rows.h"
#include "worker/input/dataset/step_node.h"

namespace cairn {
namespace {

// `spec` with `rows` as the first extent of its components; scalars do not change.
std::optional<ElementSpec> WithRows(std::optional<ElementSpec> spec, int64_t rows) {
  if (!spec.has_value()) return spec;
  for (TensorSpec& component : *spec) {
    if (component.shape.has_value() && !component.shape->empty()) (*component.shape)[0] = rows;
  }
  return spec;
}

// The first extent of all components; -1: it varies, differs or is unknown.
int64_t StaticRows(const std::optional<ElementSpec>& spec) {
  if (!spec.has_value() || spec->empty()) return -1;
  int64_t rows = -1;
  for (const TensorSpec& component : *spec) {
    if (!component.shape.has_value() || component.shape->empty()) return -1;
    const int64_t first = component.shape->front();
    if (first < 0 || (rows >= 0 && rows != first)) return -1;
    rows = first;
  }
  return rows;
}

class RebatchNode : public StepNode {
 public:
  RebatchNode(NodePtr input, std::vector<int64_t> sizes, bool drop_remainder)
      : StepNode(std::move(input)),
        sizes_(std::move(sizes)),
        drop_remainder_(drop_remainder),
        spec_(WithRows(this->input().spec(), drop_remainder && AllEqual() ? sizes_[0] : -1)) {}
  std::string name() const override { return "Rebatch"; }
  int64_t cardinality() const override {
    return input().cardinality() == kInfiniteCardinality ? kInfiniteCardinality
                                                         : kUnknownCardinality;
  }
  const std::optional<ElementSpec>& spec() const override { return spec_; }
  int64_t batch_size() const override { return -1; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<RebatchNode>(inputs.front(), sizes_, drop_remainder_);
  }

 private:
  IteratorPtr Iterate(IteratorPtr batches, const IterationContext&) const override {
    return std::make_unique<Iterator>(std::move(batches), *this);
  }

  class Iterator : public DatasetIterator {
   public:
    Iterator(std::unique_ptr<DatasetIterator> batches, const RebatchNode& node)
        : batches_(std::move(batches)),
          sizes_(node.sizes_),
          drop_remainder_(node.drop_remainder_),
          spec_(node.spec_) {}
    absl::StatusOr<bool> Next(Element* element) override;

   private:
    // Reads the next nonempty batch. False at the end.
    absl::StatusOr<bool> Refill();
    absl::StatusOr<bool> Empty(Element* element);

    const std::unique_ptr<DatasetIterator> batches_;
    const std::vector<int64_t> sizes_;
    const bool drop_remainder_;
    std::optional<ElementSpec> spec_;  // of the elements read, or of the input; nullopt: not known
                                       // yet
    std::vector<Element> parts_;       // of the batch being built
    int64_t part_rows_ = 0;
    Element batch_;  // rows [row_, rows_) of it are not returned yet
    int64_t row_ = 0;
    int64_t rows_ = 0;
    size_t at_ = 0;  // index in sizes_
    bool ended_ = false;
  };

  bool AllEqual() const {
    return std::ranges::all_of(sizes_, [this](int64_t size) { return size == sizes_[0]; });
  }

  const std::vector<int64_t> sizes_;
  const bool drop_remainder_;
  const std::optional<ElementSpec> spec_;
};

absl::StatusOr<bool> RebatchNode::Iterator::Refill() {
  while (row_ == rows_) {
    ASSIGN_OR_RETURN(const bool more, batches_->Next(&batch_));
    if (!more) {
      ended_ = true;
      return false;
    }
    row_ = rows_ = 0;
    ASSIGN_OR_RETURN(rows_, BatchRows(batch_, "Rebatch"));
    spec_ = SpecOf(batch_);
  }
  return true;
}

absl::StatusOr<bool> RebatchNode::Iterator::Empty(Element* element) {
  // If the number of rows is unknown, the first batch determines it.
  if (!spec_.has_value()) {
    ASSIGN_OR_RETURN(const bool more, Refill());
    if (!more) return false;
  }
  ASSIGN_OR_RETURN(*element, NoRows(*spec_, "Rebatch"));
  return true;
}

absl::StatusOr<bool> RebatchNode::Iterator::Next(Element* element) {
  if (ended_) return false;
  const int64_t size = sizes_[at_];
  if (size == 0) {
    ASSIGN_OR_RETURN(const bool made, Empty(element));
    at_ = at_ + 1 == sizes_.size() ? 0 : at_ + 1;
    return made;
  }
  while (part_rows_ < size) {
    ASSIGN_OR_RETURN(const bool more, Refill());
    if (!more) break;
    const int64_t end = std::min(rows_, row_ + size - part_rows_);
    parts_.push_back(SliceRows(batch_, row_, end));
    part_rows_ += end - row_;
    row_ = end;
  }
  at_ = at_ + 1 == sizes_.size() ? 0 : at_ + 1;
  const std::vector<Element> parts = std::exchange(parts_, {});
  const int64_t rows = std::exchange(part_rows_, 0);
  if (rows == 0 || (rows < size && drop_remainder_)) return false;
  ASSIGN_OR_RETURN(*element, ConcatRows(parts, "Rebatch"));
  return true;
}

class LegacyRebatchNode : public StepNode {
 public:
  LegacyRebatchNode(NodePtr input, int64_t splits) : StepNode(std::move(input)), splits_(splits) {
    const int64_t rows = StaticRows(this->input().spec());
    spec_ = WithRows(this->input().spec(), rows >= 0 && rows % splits == 0 ? rows / splits : -1);
  }
  std::string name() const override { return "LegacyRebatch"; }
  int64_t cardinality() const override {
    const int64_t batches = input().cardinality();
    return IsKnown(batches) && batches > INT64_MAX / splits_ ? kUnknownCardinality
           : IsKnown(batches)                                ? batches * splits_
                                                             : batches;
  }
  const std::optional<ElementSpec>& spec() const override { return spec_; }
  int64_t batch_size() const override { return -1; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<LegacyRebatchNode>(inputs.front(), splits_);
  }

 private:
  IteratorPtr Iterate(IteratorPtr batches, const IterationContext&) const override {
    // at: the slice of batch; splits: all are returned.
    return IterateBy([batches = std::move(batches), splits = splits_, batch = Element(),
                      rows = int64_t{0},
                      at = splits_](Element* element) mutable -> absl::StatusOr<bool> {
      if (at == splits) {
        ASSIGN_OR_RETURN(const bool more, batches->Next(&batch));
        if (!more) return false;
        ASSIGN_OR_RETURN(rows, BatchRows(batch, "LegacyRebatch"));
        at = 0;
      }
      const int64_t each = (rows + splits - 1) / splits;
      const int64_t begin = std::min(rows, at * each);
      *element = SliceRows(batch, begin, std::min(rows, begin + each));
      ++at;
      return true;
    });
  }

  const int64_t splits_;
  std::optional<ElementSpec> spec_;
};

}  // namespace

Dataset Dataset::Rebatch(std::vector<int64_t> sizes, bool drop_remainder) const {
  if (node_ == nullptr) return *this;
  for (const int64_t size : sizes) {
    if (size < 0) return Refused("Rebatch", "a size", size, "0 or more");
  }
  if (std::ranges::count(sizes, 0) == static_cast<ptrdiff_t>(sizes.size())) {
    return FromError(absl::InvalidArgumentError("Rebatch: no size above 0 is given"));
  }
  return With(std::make_shared<RebatchNode>(node_, std::move(sizes), drop_remainder));
}

Dataset Dataset::LegacyRebatch(int64_t splits) const {
  if (node_ == nullptr) return *this;
  if (splits < 1) return Refused("LegacyRebatch", "splits", splits, "1 or more");
  return With(std::make_shared<LegacyRebatchNode>(node_, splits));
}

absl::StatusOr<std::vector<int64_t>> BatchSizesForWorker(int64_t global_batch, int64_t workers,
                                                         int64_t replicas_per_worker,
                                                         int64_t worker) {
  constexpr int64_t kMaxReplicas = int64_t{1} << 24;
  if (global_batch < 0 || workers < 1 || replicas_per_worker < 1 || worker < 0 ||
      worker >= workers || workers > kMaxReplicas / replicas_per_worker) {
    return InvalidArgument("batch sizes of worker ", worker, " of ", workers, " with ",
                           replicas_per_worker, " replicas each, for a global batch of ",
                           global_batch,
                           ": workers and replicas must be 1 "
                           "to ",
                           kMaxReplicas,
                           " in all, the worker below the number of workers, the batch not "
                           "negative");
  }
  const int64_t replicas = workers * replicas_per_worker;
  std::vector<int64_t> sizes(static_cast<size_t>(replicas), global_batch / replicas);
  for (int64_t i = 0; i < global_batch % replicas; ++i) ++sizes[static_cast<size_t>(i)];
  std::rotate(sizes.begin(), sizes.begin() + worker * replicas_per_worker, sizes.end());
  return sizes;
}

absl::StatusOr<int64_t> ComputeBatchSize(const Dataset& dataset) {
  RETURN_IF_ERROR(dataset.status());
  const std::optional<ElementSpec>& spec = dataset.spec();
  if (spec.has_value() && !spec->empty()) {
    bool all_known = true;
    for (const TensorSpec& component : *spec) {
      if (component.shape.has_value() && component.shape->empty()) {
        return InvalidArgument("the dataset's elements have a scalar component (",
                               component.ToText(),
                               "): they are not batched; call Batch before it is distributed");
      }
      all_known = all_known && component.shape.has_value() && component.shape->front() >= 0;
    }
    if (all_known) return StaticRows(spec);
  }
  return dataset.node()->batch_size();
}

}  // namespace cairn
