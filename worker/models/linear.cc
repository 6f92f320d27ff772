// scores = x kernel + bias: logistic, softmax and linear regression.
#include <memory>
#include <utility>

#include "common/status.h"
#include "worker/models/model_base.h"
#include "worker/models/sparse_columns.h"

namespace cairn {
namespace {

class SparseLinear : public ModelBase {
 public:
  SparseLinear(const ModelArguments& arguments, int64_t features, int64_t classes)
      : ModelBase(arguments, classes),
        classes_(static_cast<size_t>(classes)),
        kernel_(list_.AddDense("kernel", {features, classes}, {})),
        bias_(list_.AddDense("bias", {classes}, {})),
        columns_(features, classes, {kernel_}) {}

 protected:
  absl::Status PlanParts(const Batch& batch, StepState* state) const override {
    return columns_.Plan(batch, state);
  }

  void Forward(StepView& step, float* scores) const override {
    const CsrView x = columns_.View(step);
    step.ops().SparseTimesDense(x, step.values(kernel_), classes_, scores);
    step.ops().AddToRows(step.values(bias_), x.rows, classes_, /*relu=*/false, scores);
  }

  void Backward(StepView& step, float* d_scores) const override {
    const CsrView x = columns_.View(step);
    step.ops().SparseTransposedTimesDense(x, d_scores, classes_, columns_.ValueRows(step),
                                          step.gradient(kernel_));
    step.GradientDone(kernel_);
    step.ops().SumRows(d_scores, x.rows, classes_, step.gradient(bias_));
    step.GradientDone(bias_);
  }

 private:
  const size_t classes_, kernel_, bias_;
  const SparseColumns columns_;
};

class DenseLinear : public ModelBase {
 public:
  DenseLinear(const ModelArguments& arguments, int64_t features, int64_t classes)
      : ModelBase(arguments, classes),
        features_(features),
        kernel_(list_.AddDense("kernel", {features, classes}, {})),
        bias_(list_.AddDense("bias", {classes}, {})) {}

 protected:
  absl::Status PlanParts(const Batch&, StepState*) const override { return absl::OkStatus(); }

  void Forward(StepView& step, float* scores) const override {
    step.ops().DenseForward(Shape(step), step.input().dense, step.values(kernel_),
                            step.values(bias_), /*relu=*/false, scores);
  }

  void Backward(StepView& step, float* d_scores) const override {
    step.ops().DenseBackward(Shape(step), step.input().dense, step.values(kernel_), d_scores,
                             nullptr, 0, step.gradient(kernel_));
    step.GradientDone(kernel_);
    step.ops().SumRows(d_scores, static_cast<size_t>(step.rows()), static_cast<size_t>(outputs()),
                       step.gradient(bias_));
    step.GradientDone(bias_);
  }

 private:
  DenseShape Shape(const StepView& step) const {
    return {step.rows(), features_, outputs(), features_};
  }

  const int64_t features_;
  const size_t kernel_, bias_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLinear(const ModelArguments& arguments) {
  const Schema& schema = arguments.schema;
  const int64_t classes = arguments.config.classes;
  if (schema.key_columns > 0) {
    return absl::InvalidArgumentError(
        "model linear reads numbers (libsvm, csv, idx), and this data has key columns: take "
        "wide_deep or fm, which hold a linear term for every key");
  }
  if (schema.sparse_columns > 0) {
    return std::make_unique<SparseLinear>(arguments, schema.sparse_columns, classes);
  }
  return std::make_unique<DenseLinear>(arguments, schema.dense_columns, classes);
}

}  // namespace cairn
