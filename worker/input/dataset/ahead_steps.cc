// Map and Prefetch, whose threads read ahead.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/catch_exceptions.h"
#include "common/status.h"
#include "worker/input/dataset/step_node.h"
#include "worker/input/dataset/steps.h"
#include "worker/input/read_ahead.h"

namespace cairn::steps {
namespace {

// Elements of `input`, completed by `finish` in `threads` threads; `ahead` of them are ready.
// Errors name `step`.
IteratorPtr IterateAhead(const char* step, IteratorPtr input, size_t ahead,
                         ReadAhead<Element>::Finish finish, int threads) {
  auto read = [input = std::shared_ptr<DatasetIterator>(std::move(input))](Element* element) {
    return CatchExceptions("a function of the dataset", [&] { return input->Next(element); });
  };
  auto elements = std::make_unique<ReadAhead<Element>>(absl::StrCat("elements of ", step), ahead,
                                                       read, std::move(finish), threads);
  return IterateBy([elements = std::move(elements)](Element* element) {
    element->clear();  // so that no tensor is kept as spare memory
    return elements->Next(element);
  });
}

// Gives `element` memory that it shares with no cache, source or other element, so that a function
// may write to it.
void Detach(Element* element) {
  for (Tensor& tensor : *element) {
    if (!tensor.is_text() && tensor.device().is_cpu() && !tensor.IsOnlyCopy()) {
      tensor = tensor.Copy();
    }
  }
}

class MapNode : public StepNode {
 public:
  MapNode(NodePtr input, std::shared_ptr<const MapFunction> function, MapOptions options)
      : StepNode(std::move(input)), function_(std::move(function)), options_(std::move(options)) {}
  std::string name() const override { return "Map"; }
  const std::optional<ElementSpec>& spec() const override { return options_.spec; }
  int64_t batch_size() const override { return -1; }
  NodePtr WithInputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<MapNode>(inputs.front(), function_, options_);
  }

 private:
  IteratorPtr Iterate(IteratorPtr input, const IterationContext&) const override {
    auto map = [function = function_](Element* element) -> absl::Status {
      Detach(element);
      ASSIGN_OR_RETURN(*element, CatchExceptions("the function of Map",
                                                 [&] { return (*function)(std::move(*element)); }));
      return absl::OkStatus();
    };
    const int32_t calls = options_.num_parallel_calls;
    if (calls > 1) {
      // While the first of the elements under way is slow, the other threads continue.
      return IterateAhead("Map", std::move(input), 2 * static_cast<size_t>(calls), map, calls);
    }
    return IterateBy([input = std::move(input), map](Element* element) -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(const bool more, input->Next(element));
      if (more) RETURN_IF_ERROR(map(element));
      return more;
    });
  }

  const std::shared_ptr<const MapFunction> function_;
  const MapOptions options_;
};

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
    return IterateAhead(
        "Prefetch", std::move(input), static_cast<size_t>(buffer_size_),
        [](Element*) { return absl::OkStatus(); }, 1);
  }

  const int64_t buffer_size_;
};

}  // namespace

NodePtr Map(NodePtr input, MapFunction function, MapOptions options) {
  return std::make_shared<MapNode>(std::move(input),
                                   std::make_shared<const MapFunction>(std::move(function)),
                                   std::move(options));
}

NodePtr Prefetch(NodePtr input, int64_t buffer_size) {
  return std::make_shared<PrefetchNode>(std::move(input), buffer_size);
}

}  // namespace cairn::steps
