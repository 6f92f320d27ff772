// Factorization machine (Rendle, ICDM 2010): bias + linear terms + the dot products of the factors
// of all pairs of features. Over sparse columns one variable holds all features; over keys every
// key column has its tables, and dense columns are features of their own.
#include <algorithm>
#include <memory>
#include <string>

#include "common/status.h"
#include "worker/models/key_tables.h"
#include "worker/models/linear_terms.h"
#include "worker/models/model_base.h"
#include "worker/models/sparse_columns.h"
#include "worker/ops/elementwise.h"
#include "worker/ops/interaction.h"

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

  void Forward(const Batch& batch, StepState* state, float* scores) const override {
    const CsrView x = columns_.View(batch, *state);
    SparseTimesDense(x, state->uses[linear_].values.data(), 1, scores);
    AddToRows(state->uses[bias_].values.data(), x.rows, 1, /*relu=*/false, scores);
    FmSparseForward(x, state->uses[factors_].values.data(), width_,
                    Buffer(state, sums_, x.rows * width_), scores);
  }

  void Backward(const Batch& batch, StepState* state, float* d_scores) const override {
    const CsrView x = columns_.View(batch, *state);
    const size_t value_rows = columns_.ValueRows(*state);
    SparseTransposedTimesDense(x, d_scores, 1, value_rows, state->uses[linear_].gradient.data());
    SumRows(d_scores, x.rows, 1, state->uses[bias_].gradient.data());
    FmSparseBackward(x, state->uses[factors_].values.data(), Buffer(state, sums_, x.rows * width_),
                     d_scores, width_, value_rows, state->uses[factors_].gradient.data());
  }

 private:
  const size_t width_, linear_, factors_, bias_, sums_;
  const SparseColumns columns_;
};

// Fields are the key columns, then the dense ones.
class FieldFm : public ModelBase {
 public:
  explicit FieldFm(const ModelArguments& arguments)
      : ModelBase(arguments, /*outputs=*/1),
        width_(arguments.config.factors),
        dense_columns_(arguments.schema.dense_columns),
        fields_(arguments.schema.key_columns + dense_columns_),
        linear_(&list_, ColumnNames("linear/", arguments.schema.key_columns),
                Name(arguments, "linear"), dense_columns_),
        factors_(&list_, ColumnNames("factors/", arguments.schema.key_columns), width_,
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
    PlanKeys(batch, factors_.columns(), /*hash_buckets=*/0, factors_.first_variable(), state);
    linear_.tables().TakeIds(factors_, state);
    return absl::OkStatus();
  }

  void Forward(const Batch& batch, StepState* state, float* scores) const override {
    const size_t rows = static_cast<size_t>(batch.rows);
    std::fill_n(scores, rows, state->uses[bias_].values[0]);
    linear_.AddTo(batch, *state, scores);
    float* e = Fields(batch, state);
    factors_.Gather(*state, batch.rows, e, fields_ * width_);
    if (dense_columns_ > 0) {
      ScaleFields(batch.dense.data(), state->uses[dense_factors_].values.data(), rows,
                  static_cast<size_t>(dense_columns_), static_cast<size_t>(width_), DenseFields(e),
                  static_cast<size_t>(fields_ * width_));
    }
    FmForward(e, rows, static_cast<size_t>(fields_), static_cast<size_t>(width_),
              Sums(batch, state), scores);
  }

  void Backward(const Batch& batch, StepState* state, float* d_scores) const override {
    const size_t rows = static_cast<size_t>(batch.rows);
    SumRows(d_scores, rows, 1, state->uses[bias_].gradient.data());
    linear_.Backward(batch, d_scores, state);
    float* e = Fields(batch, state);  // becomes its own gradient
    FmBackward(e, Sums(batch, state), d_scores, rows, static_cast<size_t>(fields_),
               static_cast<size_t>(width_), e);
    factors_.Scatter(state, batch.rows, e, fields_ * width_);
    if (dense_columns_ == 0) return;
    ScaleFieldsBackward(batch.dense.data(), DenseFields(e), static_cast<size_t>(fields_ * width_),
                        rows, static_cast<size_t>(dense_columns_), static_cast<size_t>(width_),
                        state->uses[dense_factors_].gradient.data());
  }

 private:
  // Dense columns beside keys: "linear/dense"; alone they are the model's only features: "linear".
  static std::string Name(const ModelArguments& arguments, const std::string& name) {
    return arguments.schema.key_columns > 0 ? name + "/dense" : name;
  }
  float* Fields(const Batch& batch, StepState* state) const {
    return Buffer(state, fields_buffer_, static_cast<size_t>(batch.rows * fields_ * width_));
  }
  float* Sums(const Batch& batch, StepState* state) const {
    return Buffer(state, sums_, static_cast<size_t>(batch.rows * width_));
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
