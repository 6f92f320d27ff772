// Several replicas in one worker: a step's rows divided over devices, one gradient of all of them.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/job_config.h"
#include "worker/models/model.h"
#include "worker/strategy/strategy.h"
#include "worker/trainer/device_model.h"

namespace cairn {

// A model whose Train runs one replica a device, each in its thread with values, rows and gradients
// of its own, and adds the gradients: that of the mean loss over the whole batch, as one replica
// would compute it but for the order of the sums, which depends on the number of replicas alone.
// Gradients of GPUs are added up in host memory, from where the step pushes them.
// Of n rows the first n mod R replicas take one more than the others. Prediction is not divided:
// the first device computes it.
class ReplicatedModel : public Model {
 public:
  // `strategy` has one replica a device; its own devices are where the replicas' host threads are
  // counted, and none of them a GPU.
  ReplicatedModel(std::unique_ptr<Model> model, std::unique_ptr<Strategy> strategy,
                  std::vector<Device> devices, OpenQueue open = OpenGpuQueue);

  absl::Span<const VariableSpec> variables() const override { return model_->variables(); }
  int64_t outputs() const override { return model_->outputs(); }
  absl::Status Plan(const Batch& batch, StepState* state) const override {
    return model_->Plan(batch, state);
  }
  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const override;
  absl::Status Predict(const Batch& batch, StepState* state,
                       std::vector<float>* scores) const override;

 private:
  class StepOfReplicas;

  const std::unique_ptr<Model> model_;
  const std::unique_ptr<Strategy> strategy_;
  const std::vector<Device> devices_;
  const OpenQueue open_;
};

// `model` on the devices of `config` (DevicesOf, whose errors it has): itself on one CPU device, a
// DeviceModel on one GPU, else with its batches divided over the devices.
absl::StatusOr<std::unique_ptr<Model>> DivideOverReplicas(std::unique_ptr<Model> model,
                                                          const StrategyConfig& config);

}  // namespace cairn
