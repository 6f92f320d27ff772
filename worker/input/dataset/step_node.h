// Base class and iterator helper of dataset nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/dataset.h"
#include "worker/input/dataset/dataset_node.h"

namespace cairn {

using IteratorPtr = std::unique_ptr<DatasetIterator>;

// The results of Dataset's methods for wrong arguments.
inline Dataset Refused(absl::string_view who, absl::string_view argument, int64_t found,
                       absl::string_view allowed) {
  return Dataset::FromError(
      InvalidArgument(who, ": ", argument, " is ", found, "; it must be ", allowed));
}
inline Dataset NoneGiven(absl::string_view method, absl::string_view what) {
  return Dataset::FromError(InvalidArgument(method, ": found no ", what, "; give one"));
}

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

}  // namespace cairn
