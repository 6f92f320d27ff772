// scores = x kernel + bias: logistic, softmax and linear regression.
#include <memory>
#include <utility>

#include "common/status.h"
#include "worker/models/model_base.h"
#include "worker/models/sparse_columns.h"
#include "worker/ops/dense.h"
#include "worker/ops/elementwise.h"

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

  void Forward(const Batch& batch, StepState* state, float* scores) const override {
    const CsrView x = columns_.View(batch, *state);
    SparseTimesDense(x, state->uses[kernel_].values.data(), classes_, scores);
    AddToRows(state->uses[bias_].values.data(), x.rows, classes_, /*relu=*/false, scores);
  }

  void Backward(const Batch& batch, StepState* state, float* d_scores) const override {
    const CsrView x = columns_.View(batch, *state);
    SparseTransposedTimesDense(x, d_scores, classes_, columns_.ValueRows(*state),
                               state->uses[kernel_].gradient.data());
    SumRows(d_scores, x.rows, classes_, state->uses[bias_].gradient.data());
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

  void Forward(const Batch& batch, StepState* state, float* scores) const override {
    DenseForward(Shape(batch), batch.dense.data(), state->uses[kernel_].values.data(),
                 state->uses[bias_].values.data(), /*relu=*/false, scores);
  }

  void Backward(const Batch& batch, StepState* state, float* d_scores) const override {
    DenseBackward(Shape(batch), batch.dense.data(), state->uses[kernel_].values.data(), d_scores,
                  nullptr, 0, state->uses[kernel_].gradient.data(),
                  state->uses[bias_].gradient.data());
  }

 private:
  DenseShape Shape(const Batch& batch) const {
    return {batch.rows, features_, outputs(), features_};
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
