#include <algorithm>
#include <utility>

#include "common/catch_exceptions.h"
#include "common/status.h"
#include "worker/input/dataset/rows.h"
#include "worker/input/dataset/step_node.h"

namespace cairn {
namespace {

class RangeNode : public SourceNode {
 public:
  RangeNode(int64_t start, int64_t stop, int64_t step)
      : SourceNode(ElementSpec{TensorSpec::Numbers(DType::kInt64, Shape{})}),
        start_(start),
        step_(step),
        count_(Count(start, stop, step)) {}

  std::string name() const override { return "Range"; }
  int64_t cardinality() const override { return count_; }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    return IterateBy([next = start_, step = step_,
                      left = count_](Element* element) mutable -> absl::StatusOr<bool> {
      if (left == 0) return false;
      element->assign(1, Tensor::Scalar<int64_t>(next));
      if (--left > 0) next += step;
      return true;
    });
  }

 private:
  // Computes in 128 bits, which hold the difference of any two bounds.
  static int64_t Count(int64_t start, int64_t stop, int64_t step) {
    const __int128 span = static_cast<__int128>(stop) - start;
    if (span == 0 || (span > 0) != (step > 0)) return 0;
    const __int128 count = (span + step - (step > 0 ? 1 : -1)) / step;
    return static_cast<int64_t>(std::min<__int128>(count, INT64_MAX));
  }

  const int64_t start_;
  const int64_t step_;
  const int64_t count_;
};

class SlicesNode : public SourceNode {
 public:
  SlicesNode(Element tensors, int64_t rows, bool whole)
      : SourceNode(whole ? SpecOf(tensors) : RowSpec(SpecOf(tensors))),
        tensors_(std::move(tensors)),
        rows_(rows),
        whole_(whole) {}

  std::string name() const override { return whole_ ? "FromTensors" : "FromTensorSlices"; }
  int64_t cardinality() const override { return whole_ ? 1 : rows_; }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    // Copies the tensors, not their memory: an iterator may outlive its dataset.
    return IterateBy([tensors = tensors_, rows = cardinality(), whole = whole_,
                      row = int64_t{0}](Element* element) mutable -> absl::StatusOr<bool> {
      if (row == rows) return false;
      *element = whole ? tensors : TakeRow(tensors, row);
      ++row;
      return true;
    });
  }

 private:
  const Element tensors_;
  const int64_t rows_;
  const bool whole_;
};

class GeneratorNode : public SourceNode {
 public:
  GeneratorNode(GeneratorFactory factory, std::optional<ElementSpec> spec)
      : SourceNode(std::move(spec)), factory_(std::move(factory)) {}

  std::string name() const override { return "FromGenerator"; }
  int64_t cardinality() const override { return kUnknownCardinality; }
  absl::StatusOr<IteratorPtr> MakeIterator(const IterationContext& context) const override {
    Generator next;
    RETURN_IF_ERROR(CallCatching("the factory of FromGenerator", [&] { next = factory_(); }));
    if (next == nullptr) {
      return absl::InvalidArgumentError("FromGenerator: its factory returned no function");
    }
    return IterateBy(
        [next = std::move(next), ended = false](Element* element) mutable -> absl::StatusOr<bool> {
          if (ended) return false;
          absl::StatusOr<bool> more =
              CatchExceptions("the function of FromGenerator", [&] { return next(element); });
          ended = more.ok() && !*more;
          return more;
        });
  }

 private:
  const GeneratorFactory factory_;
};

}  // namespace

Dataset Dataset::Range(int64_t start, int64_t stop, int64_t step) {
  if (step == 0) return Refused("Range", "step", step, "another number");
  return FromNode(std::make_shared<RangeNode>(start, stop, step));
}

Dataset Dataset::FromTensors(Element element) {
  return FromNode(std::make_shared<SlicesNode>(std::move(element), 1, /*whole=*/true));
}

Dataset Dataset::FromTensorSlices(Element rows) {
  const absl::StatusOr<int64_t> count = BatchRows(rows, "FromTensorSlices");
  if (!count.ok()) return FromError(count.status());
  return FromNode(std::make_shared<SlicesNode>(std::move(rows), *count, /*whole=*/false));
}

Dataset Dataset::FromGenerator(GeneratorFactory factory, std::optional<ElementSpec> spec) {
  if (factory == nullptr) return NoneGiven("FromGenerator", "function");
  return FromNode(std::make_shared<GeneratorNode>(std::move(factory), std::move(spec)));
}

}  // namespace cairn
