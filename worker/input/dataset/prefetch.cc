// Prefetch: a thread reads ahead.
#include <memory>
#include <utility>

#include "common/catch_exceptions.h"
#include "worker/input/dataset/step_node.h"
#include "worker/input/dataset/steps.h"
#include "worker/input/read_ahead.h"

namespace cairn::steps {
namespace {

class PrefetchNode : public StepNode {
 public:
  PrefetchNode(NodePtr input, int64_t buffer_size)
      : StepNode(std::move(input)), buffer_size_(buffer_size) {}
  std::string name() const override { return "Prefetch"; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<PrefetchNode>(inputs.front(), buffer_size_);
  }

 private:
  IteratorPtr Iterate(IteratorPtr input, const IterationContext&) const override {
    auto read = [input = std::shared_ptr<DatasetIterator>(std::move(input))](Element* element) {
      return CatchExceptions("a function of the dataset", [&] { return input->Next(element); });
    };
    auto elements = std::make_unique<ReadAhead<Element>>(static_cast<size_t>(buffer_size_), read);
    return IterateBy([elements = std::move(elements)](Element* element) {
      element->clear();  // so that no tensor is kept as spare memory
      return elements->Next(element);
    });
  }

  const int64_t buffer_size_;
};

}  // namespace

NodePtr Prefetch(NodePtr input, int64_t buffer_size) {
  return std::make_shared<PrefetchNode>(std::move(input), buffer_size);
}

}  // namespace cairn::steps
