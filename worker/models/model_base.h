// The base of all models: the loss, checks of batches, and the order of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/models/key_tables.h"
#include "worker/models/model.h"
#include "worker/models/part_list.h"
#include "worker/models/step_view.h"

namespace cairn {

enum class LossKind { kSigmoid, kSoftmax, kSquaredError };

// The arguments of every model's constructor.
struct ModelArguments {
  const ModelConfig& config;
  const Schema& schema;
  LossKind loss;
};

class ModelBase : public Model {
 public:
  absl::Span<const VariableSpec> variables() const final { return list_.variables; }
  int64_t outputs() const final { return outputs_; }
  absl::Status Plan(const Batch& batch, StepState* state) const final;
  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const final;
  absl::Status Predict(const Batch& batch, StepState* state,
                       std::vector<float>* scores) const final;

 protected:
  ModelBase(const ModelArguments& arguments, int64_t outputs);

  // Sets ids and positions of variables that are not used whole; the base has planned all of them
  // as whole.
  virtual absl::Status PlanParts(const Batch& batch, StepState* state) const = 0;
  // scores [rows, outputs], rows > 0.
  virtual void Forward(StepView& step, float* scores) const = 0;
  // Called after Forward: computes every variable's gradient, which has its size, from d_scores,
  // which may be overwritten. The base calls GradientDone for variables for which no part calls it.
  virtual void Backward(StepView& step, float* d_scores) const = 0;

  PartList list_;  // filled by the models' constructors

 private:
  absl::Status CheckBatch(const Batch& batch) const;
  absl::Status CheckPlanned(const StepState& state) const;
  absl::StatusOr<std::unique_ptr<StepView>> Begin(const Batch& batch, StepState* state) const;
  // Computes the loss of every row, and the gradient of their mean by the scores. Returns the
  // address that will hold the losses.
  const float* Loss(StepView& step, const float* scores, float* d_scores) const;

  const Schema schema_;
  const LossKind loss_;
  const int64_t outputs_;
  const size_t scores_, d_scores_, losses_;  // buffer numbers
};

// What the key columns share by the job file. Where keys of distinct columns may be equal without
// meaning the same, they share a table only by `hash_buckets` (KeyPlan).
TableSharing SharingOf(const ModelArguments& arguments, int64_t hash_buckets);

// The job's `init` if given, else `fallback`.
InitializerConfig InitializerOr(const ModelConfig& config, const InitializerConfig& fallback);

// kInvalidArgument: the schema does not fit; says which data would.
absl::StatusOr<std::unique_ptr<Model>> MakeLinear(const ModelArguments& arguments);
absl::StatusOr<std::unique_ptr<Model>> MakeMlp(const ModelArguments& arguments);
absl::StatusOr<std::unique_ptr<Model>> MakeFactorizationMachine(const ModelArguments& arguments);
absl::StatusOr<std::unique_ptr<Model>> MakeWideDeep(const ModelArguments& arguments);
absl::StatusOr<std::unique_ptr<Model>> MakeDlrm(const ModelArguments& arguments);
// matrix_factorization and skip_gram: two tables, and the dot product of their rows.
absl::StatusOr<std::unique_ptr<Model>> MakePair(const ModelArguments& arguments);

}  // namespace cairn
