#include <algorithm>
#include <utility>

#include "common/catch_exceptions.h"
#include "common/status.h"
#include "worker/input/dataset/rows.h"
#include "worker/input/dataset/steps.h"

namespace cairn::steps {
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
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    return std::make_unique<Iterator>(start_, step_, count_);
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    Iterator(int64_t start, int64_t step, int64_t count)
        : next_(start), step_(step), left_(count) {}
    absl::StatusOr<bool> Next(Element* element) override {
      if (left_ == 0) return false;
      element->assign(1, Tensor::Scalar<int64_t>(next_));
      if (--left_ > 0) next_ += step_;
      return true;
    }

   private:
    int64_t next_;
    const int64_t step_;
    int64_t left_;
  };

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
      : SourceNode(whole ? SpecOf(tensors) : RowSpec(tensors)),
        tensors_(std::move(tensors)),
        rows_(rows),
        whole_(whole) {}

  std::string name() const override { return whole_ ? "FromTensors" : "FromTensorSlices"; }
  int64_t cardinality() const override { return whole_ ? 1 : rows_; }
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    return std::make_unique<Iterator>(*this);
  }

 private:
  // Copies the tensors, not their memory: an iterator may outlive its dataset.
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(const SlicesNode& node)
        : tensors_(node.tensors_), rows_(node.cardinality()), whole_(node.whole_) {}
    absl::StatusOr<bool> Next(Element* element) override {
      if (row_ == rows_) return false;
      *element = whole_ ? tensors_ : TakeRow(tensors_, row_);
      ++row_;
      return true;
    }

   private:
    const Element tensors_;
    const int64_t rows_;
    const bool whole_;
    int64_t row_ = 0;
  };

  static ElementSpec RowSpec(const Element& tensors) {
    ElementSpec spec = SpecOf(tensors);
    for (TensorSpec& component : spec) component.shape->erase(component.shape->begin());
    return spec;
  }

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
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    Generator next;
    RETURN_IF_ERROR(CallCatching("the factory of FromGenerator", [&] { next = factory_(); }));
    if (next == nullptr) {
      return absl::InvalidArgumentError("FromGenerator: its factory returned no function");
    }
    return std::make_unique<Iterator>(std::move(next));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(Generator next) : next_(std::move(next)) {}
    absl::StatusOr<bool> Next(Element* element) override {
      if (ended_) return false;
      absl::StatusOr<bool> more =
          CatchExceptions("the function of FromGenerator", [&] { return next_(element); });
      ended_ = more.ok() && !*more;
      return more;
    }

   private:
    const Generator next_;
    bool ended_ = false;
  };

  const GeneratorFactory factory_;
};

}  // namespace

NodePtr Range(int64_t start, int64_t stop, int64_t step) {
  return std::make_shared<RangeNode>(start, stop, step);
}

NodePtr Slices(Element tensors, int64_t rows, bool whole) {
  return std::make_shared<SlicesNode>(std::move(tensors), rows, whole);
}

NodePtr Generate(GeneratorFactory factory, std::optional<ElementSpec> spec) {
  return std::make_shared<GeneratorNode>(std::move(factory), std::move(spec));
}

}  // namespace cairn::steps
