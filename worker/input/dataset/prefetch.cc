// Prefetch: a thread reads ahead.
#include <memory>
#include <utility>

#include "common/catch_exceptions.h"
#include "common/status.h"
#include "worker/input/dataset/steps.h"
#include "worker/input/read_ahead.h"

namespace cairn::steps {
namespace {

class PrefetchIterator : public DatasetIterator {
 public:
  PrefetchIterator(std::unique_ptr<DatasetIterator> input, int64_t buffer_size)
      : elements_(static_cast<size_t>(buffer_size),
                  [input = std::shared_ptr<DatasetIterator>(std::move(input))](Element* element) {
                    return CatchExceptions("a function of the dataset",
                                           [&] { return input->Next(element); });
                  }) {}

  absl::StatusOr<bool> Next(Element* element) override {
    element->clear();  // so that no tensor is kept as spare memory
    return elements_.Next(element);
  }

 private:
  ReadAhead<Element> elements_;
};

class PrefetchNode : public DatasetNode {
 public:
  PrefetchNode(NodePtr input, int64_t buffer_size)
      : DatasetNode({std::move(input)}), buffer_size_(buffer_size) {}
  std::string name() const override { return "Prefetch"; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<PrefetchNode>(inputs.front(), buffer_size_);
  }
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto input, this->input().MakeIterator(context));
    return std::make_unique<PrefetchIterator>(std::move(input), buffer_size_);
  }

 private:
  const int64_t buffer_size_;
};

}  // namespace

NodePtr Prefetch(NodePtr input, int64_t buffer_size) {
  return std::make_shared<PrefetchNode>(std::move(input), buffer_size);
}

}  // namespace cairn::steps
