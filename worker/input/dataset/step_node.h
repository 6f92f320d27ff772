// What the nodes of Dataset's sources and transformations share.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/status.h"
#include "worker/input/dataset/dataset_node.h"

namespace cairn::steps {

using IteratorPtr = std::unique_ptr<DatasetIterator>;

// An iterator whose Next is `next`.
template <typename Function>
IteratorPtr IterateBy(Function next) {
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(Function next) : next_(std::move(next)) {}
    absl::StatusOr<bool> Next(Element* element) override { return next_(element); }

   private:
    Function next_;
  };
  return std::make_unique<Iterator>(std::move(next));
}

// A node with one input, of which every iterator reads one pass.
class StepNode : public DatasetNode {
 public:
  explicit StepNode(NodePtr input) : DatasetNode({std::move(input)}) {}
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const final {
    ASSIGN_OR_RETURN(IteratorPtr input, this->input().MakeIterator(context));
    return Iterate(std::move(input), context);
  }

 protected:
  virtual IteratorPtr Iterate(IteratorPtr input, const IterationContext& context) const = 0;
};

}  // namespace cairn::steps
