// Several replicas in one worker: a step's rows divided over devices, one gradient of all of them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/config/job_config.h"
#include "worker/models/model.h"
#include "worker/strategy/strategy.h"

namespace cairn {

// A model whose Train runs one replica a device, each in its thread with values, rows and gradients
// of its own, and adds the gradients: that of the mean loss over the whole batch, as one replica
// would compute it but for the order of the sums, which depends on the number of replicas alone.
// Of n rows the first n mod R replicas take one more than the others. Prediction is not divided.
class ReplicatedModel : public Model {
 public:
  // `strategy` has one replica a device.
  ReplicatedModel(std::unique_ptr<Model> model, std::unique_ptr<Strategy> strategy);

  absl::Span<const VariableSpec> variables() const override { return model_->variables(); }
  int64_t outputs() const override { return model_->outputs(); }
  absl::Status Plan(const Batch& batch, StepState* state) const override {
    return model_->Plan(batch, state);
  }
  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const override;
  absl::Status Predict(const Batch& batch, StepState* state,
                       std::vector<float>* scores) const override {
    return model_->Predict(batch, state, scores);
  }

 private:
  class StepOfReplicas;

  const std::unique_ptr<Model> model_;
  const std::unique_ptr<Strategy> strategy_;
};

// `model` itself where `config` names one device, else with its batches divided over the devices.
absl::StatusOr<std::unique_ptr<Model>> DivideOverReplicas(std::unique_ptr<Model> model,
                                                          const StrategyConfig& config);

}  // namespace cairn
