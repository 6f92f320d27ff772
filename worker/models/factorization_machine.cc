// Factorization machine (Rendle, ICDM 2010): bias + linear terms + the dot products of the factors
// of all pairs of features. Over sparse columns one variable holds all features; over keys every
// key column has its own tables, and each dense column is one feature.
#include <memory>
#include <string>

#include "common/status.h"
#include "worker/models/key_tables.h"
#include "worker/models/linear_terms.h"
#include "worker/models/model_base.h"
#include "worker/models/sparse_columns.h"

namespace cairn {
namespace {

const InitializerConfig& DefaultFactors() {
  static const auto* const normal = new InitializerConfig{.type = "normal"};
  return *normal;
}

class SparseFm : public ModelBase {
 public:
  explicit SparseFm(const ModelArguments& arguments)
      : ModelBase(arguments, /*outputs=*/1),
        width_(static_cast<size_t>(arguments.config.factors)),
        linear_(list_.AddDense("linear", {arguments.schema.sparse_columns, 1}, {})),
        factors_(list_.AddDense("factors",
                                {arguments.schema.sparse_columns, arguments.config.factors},
                                InitializerOr(arguments.config, DefaultFactors()))),
        bias_(list_.AddDense("bias", {1}, {})),
        sums_(list_.AddBuffer()),
        columns_(arguments.schema.sparse_columns, 1 + arguments.config.factors,
                 {linear_, factors_}) {}

 protected:
  absl::Status PlanParts(const Batch& batch, StepState* state) const override {
    return columns_.Plan(batch, state);
  }

  void Forward(StepView& step, float* scores) const override {
    const CsrView x = columns_.View(step);
    step.ops().SparseTimesDense(x, step.values(linear_), 1, scores);
    step.ops().AddToRows(step.values(bias_), x.rows, 1, /*relu=*/false, scores);
    step.ops().FmSparseForward(x, step.values(factors_), width_,
                               step.Buffer(sums_, x.rows * width_), scores);
  }

  void Backward(StepView& step, float* d_scores) const override {
    const CsrView x = columns_.View(step);
    const size_t value_rows = columns_.ValueRows(step);
    step.ops().SparseTransposedTimesDense(x, d_scores, 1, value_rows, step.gradient(linear_));
    step.GradientDone(linear_);
    step.ops().SumRows(d_scores, x.rows, 1, step.gradient(bias_));
    step.GradientDone(bias_);
    step.ops().FmSparseBackward(x, step.values(factors_), step.Buffer(sums_, x.rows * width_),
                                d_scores, width_, value_rows, step.gradient(factors_));
    step.GradientDone(factors_);
  }

 private:
  const size_t width_, linear_, factors_, bias_, sums_;
  const SparseColumns columns_;
};

// The fields are the key columns, then the dense columns.
class FieldFm : public ModelBase {
 public:
  explicit FieldFm(const ModelArguments& arguments)
      : ModelBase(arguments, /*outputs=*/1),
        width_(arguments.config.factors),
        dense_columns_(arguments.schema.dense_columns),
        fields_(arguments.schema.key_columns + dense_columns_),
        linear_(&list_, arguments.schema, SharingOf(arguments, /*hash_buckets=*/0), "linear/",
                Name(arguments, "linear")),
        factors_(&list_, "factors/", arguments.schema.key_columns,
                 SharingOf(arguments, /*hash_buckets=*/0), width_,
                 InitializerOr(arguments.config, DefaultFactors())),
        dense_factors_(dense_columns_ == 0
                           ? 0
                           : list_.AddDense(Name(arguments, "factors"), {dense_columns_, width_},
                                            InitializerOr(arguments.config, DefaultFactors()))),
        bias_(list_.AddDense("bias", {1}, {})),
        fields_buffer_(list_.AddBuffer()),
        sums_(list_.AddBuffer()) {}

 protected:
  absl::Status PlanParts(const Batch& batch, StepState* state) const override {
    factors_.Plan(batch, /*hash_buckets=*/0, state);
    linear_.tables().TakeIds(factors_, state);
    return absl::OkStatus();
  }

  void Forward(StepView& step, float* scores) const override {
    const size_t rows = static_cast<size_t>(step.rows());
    step.ops().Zero(scores, rows);
    step.ops().AddToRows(step.values(bias_), rows, 1, /*relu=*/false, scores);
    linear_.AddTo(step, scores);
    float* e = Fields(step);
    factors_.Gather(step, e, fields_ * width_);
    if (dense_columns_ > 0) {
      step.ops().ScaleFields(step.input().dense, step.values(dense_factors_), rows,
                             static_cast<size_t>(dense_columns_), static_cast<size_t>(width_),
                             DenseFields(e), static_cast<size_t>(fields_ * width_));
    }
    step.ops().FmForward(e, rows, static_cast<size_t>(fields_), static_cast<size_t>(width_),
                         Sums(step), scores);
  }

  void Backward(StepView& step, float* d_scores) const override {
    const size_t rows = static_cast<size_t>(step.rows());
    step.ops().SumRows(d_scores, rows, 1, step.gradient(bias_));
    step.GradientDone(bias_);
    linear_.Backward(step, d_scores);
    float* e = Fields(step);  // overwritten with its own gradient
    step.ops().FmBackward(e, Sums(step), d_scores, rows, static_cast<size_t>(fields_),
                          static_cast<size_t>(width_), e);
    factors_.Scatter(step, e, fields_ * width_);
    if (dense_columns_ == 0) return;
    step.ops().ScaleFieldsBackward(step.input().dense, DenseFields(e),
                                   static_cast<size_t>(fields_ * width_), rows,
                                   static_cast<size_t>(dense_columns_), static_cast<size_t>(width_),
                                   step.gradient(dense_factors_));
    step.GradientDone(dense_factors_);
  }

 private:
  // With keys, the dense columns' variable is "linear/dense"; without keys it is the model's only
  // one: "linear".
  static std::string Name(const ModelArguments& arguments, const std::string& name) {
    return arguments.schema.key_columns > 0 ? name + "/dense" : name;
  }
  float* Fields(StepView& step) const {
    return step.Buffer(fields_buffer_, static_cast<size_t>(step.rows() * fields_ * width_));
  }
  float* Sums(StepView& step) const {
    return step.Buffer(sums_, static_cast<size_t>(step.rows() * width_));
  }
  float* DenseFields(float* e) const { return e + factors_.columns() * width_; }

  const int64_t width_, dense_columns_, fields_;
  const LinearTerms linear_;
  const KeyTables factors_;
  const size_t dense_factors_, bias_, fields_buffer_, sums_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeFactorizationMachine(const ModelArguments& arguments) {
  if (arguments.schema.sparse_columns > 0) return std::make_unique<SparseFm>(arguments);
  if (arguments.schema.key_columns > 0 && arguments.config.init_given) {
    RETURN_IF_ERROR(Annotate(ValidateInitializer(arguments.config.init, /*is_embedding=*/true),
                             "model.init, which fm over keys gives to tables"));
  }
  return std::make_unique<FieldFm>(arguments);
}

}  // namespace cairn
