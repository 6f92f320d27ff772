// Steps that call functions in the caller's thread, and steps that join several inputs.
#include <algorithm>
#include <utility>

#include "common/catch_exceptions.h"
#include "common/status.h"
#include "worker/input/dataset/step_node.h"
#include "worker/input/dataset/steps.h"
#include "worker/input/random.h"

namespace cairn::steps {
namespace {

class FilterNode : public StepNode {
 public:
  FilterNode(NodePtr input, std::shared_ptr<const FilterFunction> predicate)
      : StepNode(std::move(input)), predicate_(std::move(predicate)) {}
  std::string name() const override { return "Filter"; }
  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<FilterNode>(inputs.front(), predicate_);
  }

 private:
  IteratorPtr Iterate(IteratorPtr input, const IterationContext&) const override {
    return IterateBy([input = std::move(input),
                      predicate = predicate_](Element* element) -> absl::StatusOr<bool> {
      for (;;) {
        ASSIGN_OR_RETURN(const bool more, input->Next(element));
        if (!more) return false;
        ASSIGN_OR_RETURN(const bool kept, CatchExceptions("the function of Filter",
                                                          [&] { return (*predicate)(*element); }));
        if (kept) return true;
      }
    });
  }

  const std::shared_ptr<const FilterFunction> predicate_;
};

// FlatMap is an Interleave of one dataset at a time.
class InterleaveNode : public StepNode {
 public:
  InterleaveNode(NodePtr input, std::shared_ptr<const DatasetFunction> function,
                 int64_t cycle_length, int64_t block_length)
      : StepNode(std::move(input)),
        function_(std::move(function)),
        cycle_length_(cycle_length),
        block_length_(block_length) {}
  std::string name() const override { return "Interleave"; }
  int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  const std::optional<ElementSpec>& spec() const override { return function_->spec; }
  int64_t batch_size() const override { return -1; }
  FileSharding file_sharding() const override {
    return function_->reads_files ? FileSharding::kNames : FileSharding::kInputs;
  }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<InterleaveNode>(inputs.front(), function_, cycle_length_,
                                            block_length_);
  }

 private:
  IteratorPtr Iterate(IteratorPtr input, const IterationContext& context) const override {
    return std::make_unique<Iterator>(std::move(input), *this, context);
  }

  class Iterator : public DatasetIterator {
   public:
    Iterator(IteratorPtr input, const InterleaveNode& node, const IterationContext& context)
        : input_(std::move(input)),
          function_(node.function_),
          context_(context),
          block_length_(node.block_length_),
          cycle_(static_cast<size_t>(node.cycle_length_)) {}

    absl::StatusOr<bool> Next(Element* element) override {
      while (!input_ended_ || open_ > 0) {
        IteratorPtr& source = cycle_[at_];
        if (source == nullptr) {
          if (!input_ended_) RETURN_IF_ERROR(Open(&source));
          if (source == nullptr) {
            Advance();
            continue;
          }
        }
        absl::StatusOr<bool> more = source->Next(element);
        if (!more.ok()) return more;
        if (*more) {
          if (++taken_ == block_length_) Advance();
          return true;
        }
        source = nullptr;
        --open_;
        Advance();
      }
      return false;
    }

   private:
    // Leaves *source null at the end of the input.
    absl::Status Open(IteratorPtr* source) {
      Element element;
      ASSIGN_OR_RETURN(const bool more, input_->Next(&element));
      if (!more) {
        input_ended_ = true;
        return absl::OkStatus();
      }
      const absl::StatusOr<Dataset> dataset =
          CatchExceptions("the function of FlatMap or Interleave",
                          [&]() -> absl::StatusOr<Dataset> { return function_->call(element); });
      RETURN_IF_ERROR(dataset.status());
      RETURN_IF_ERROR(dataset->status());
      const IterationContext context{CombineSeeds(context_.pass, opened_++)};
      ASSIGN_OR_RETURN(*source, dataset->node()->MakeIterator(context));
      ++open_;
      return absl::OkStatus();
    }
    void Advance() {
      at_ = at_ + 1 == cycle_.size() ? 0 : at_ + 1;
      taken_ = 0;
    }

    const IteratorPtr input_;
    const std::shared_ptr<const DatasetFunction> function_;
    const IterationContext context_;
    const int64_t block_length_;
    std::vector<IteratorPtr> cycle_;  // null: not opened yet
    size_t at_ = 0;
    size_t open_ = 0;
    int64_t taken_ = 0;  // of the current block
    uint64_t opened_ = 0;
    bool input_ended_ = false;
  };

  const std::shared_ptr<const DatasetFunction> function_;
  const int64_t cycle_length_;
  const int64_t block_length_;
};

class ZipNode : public DatasetNode {
 public:
  explicit ZipNode(std::vector<NodePtr> inputs) : DatasetNode(std::move(inputs)) {
    spec_.emplace();
    for (const NodePtr& one : this->inputs()) {
      if (!one->spec().has_value()) {
        spec_.reset();
        return;
      }
      spec_->insert(spec_->end(), one->spec()->begin(), one->spec()->end());
    }
  }
  std::string name() const override { return "Zip"; }
  int64_t cardinality() const override {
    int64_t shortest = kInfiniteCardinality;
    for (const NodePtr& one : inputs()) {
      const int64_t count = one->cardinality();
      if (count == kUnknownCardinality) return kUnknownCardinality;
      if (!IsKnown(count)) continue;
      shortest = IsKnown(shortest) ? std::min(shortest, count) : count;
    }
    return shortest;
  }
  const std::optional<ElementSpec>& spec() const override { return spec_; }
  int64_t batch_size() const override {
    const int64_t size = input().batch_size();
    for (const NodePtr& one : inputs()) {
      if (one->batch_size() != size) return -1;
    }
    return size;
  }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<ZipNode>(std::move(inputs));
  }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    std::vector<IteratorPtr> all;
    for (const NodePtr& one : inputs()) {
      ASSIGN_OR_RETURN(all.emplace_back(), one->MakeIterator(context));
    }
    return IterateBy([all = std::move(all), part = Element(),
                      ended = false](Element* element) mutable -> absl::StatusOr<bool> {
      if (ended) return false;
      element->clear();
      // Reads all inputs even after an error, so that they stay at the same position.
      absl::StatusOr<bool> result = true;
      for (const IteratorPtr& one : all) {
        absl::StatusOr<bool> more = one->Next(&part);
        if (!more.ok()) {
          if (result.ok()) result = std::move(more);
          continue;
        }
        if (!*more) {
          ended = true;
          return false;
        }
        std::move(part.begin(), part.end(), std::back_inserter(*element));
      }
      return result;
    });
  }

 private:
  std::optional<ElementSpec> spec_;
};

class ConcatenateNode : public DatasetNode {
 public:
  ConcatenateNode(NodePtr first, NodePtr second, std::optional<ElementSpec> spec)
      : DatasetNode({std::move(first), std::move(second)}), spec_(std::move(spec)) {}
  std::string name() const override { return "Concatenate"; }
  int64_t cardinality() const override {
    const int64_t a = inputs()[0]->cardinality();
    const int64_t b = inputs()[1]->cardinality();
    if (a == kInfiniteCardinality || b == kInfiniteCardinality) return kInfiniteCardinality;
    return IsKnown(a) && IsKnown(b) && a <= INT64_MAX - b ? a + b : kUnknownCardinality;
  }
  const std::optional<ElementSpec>& spec() const override { return spec_; }
  int64_t batch_size() const override {
    const int64_t size = inputs()[0]->batch_size();
    return size == inputs()[1]->batch_size() ? size : -1;
  }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<ConcatenateNode>(inputs[0], inputs[1], spec_);
  }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    ASSIGN_OR_RETURN(IteratorPtr first, inputs()[0]->MakeIterator(context));
    ASSIGN_OR_RETURN(IteratorPtr second, inputs()[1]->MakeIterator(context));
    return IterateBy([first = std::move(first), second = std::move(second)](
                         Element* element) mutable -> absl::StatusOr<bool> {
      if (first != nullptr) {
        ASSIGN_OR_RETURN(const bool more, first->Next(element));
        if (more) return true;
        first = nullptr;
      }
      return second->Next(element);
    });
  }

 private:
  const std::optional<ElementSpec> spec_;
};

}  // namespace

NodePtr Filter(NodePtr input, FilterFunction predicate) {
  return std::make_shared<FilterNode>(std::move(input),
                                      std::make_shared<const FilterFunction>(std::move(predicate)));
}

NodePtr FlatMap(NodePtr input, DatasetFunction function) {
  return Interleave(std::move(input), std::move(function), 1, 1);
}

NodePtr Interleave(NodePtr input, DatasetFunction function, int64_t cycle_length,
                   int64_t block_length) {
  return std::make_shared<InterleaveNode>(
      std::move(input), std::make_shared<const DatasetFunction>(std::move(function)), cycle_length,
      block_length);
}

NodePtr Zip(std::vector<NodePtr> inputs) { return std::make_shared<ZipNode>(std::move(inputs)); }

NodePtr Concatenate(NodePtr first, NodePtr second, std::optional<ElementSpec> spec) {
  return std::make_shared<ConcatenateNode>(std::move(first), std::move(second), std::move(spec));
}

}  // namespace cairn::steps
