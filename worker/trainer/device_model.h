// Models on the devices that a job names.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/device.h"
#include "worker/models/model.h"
#include "worker/ops/device_queue.h"

namespace cairn {

using OpenQueue = std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>(Device)>;

// What `config` names, one entry a replica; a GPU may be there several times. Where it names none:
// every usable GPU (the first one, for types that compute on one device), else cpu:0.
// kInvalidArgument: a GPU that this process cannot use; says which there are.
absl::StatusOr<std::vector<Device>> DevicesOf(const StrategyConfig& config);

// "gpu:0, gpu:1".
std::string DevicesText(absl::Span<const Device> devices);

// Has `state` computed on `device` from its next step on. Errors as `open`, which is called for a
// GPU the first time.
absl::Status PlaceStep(Device device, const OpenQueue& open, StepState* state);

// `model` with its steps computed on a GPU. Plans are made on the CPU.
class DeviceModel : public Model {
 public:
  DeviceModel(std::unique_ptr<Model> model, Device device, OpenQueue open = OpenGpuQueue);

  absl::Span<const VariableSpec> variables() const override { return model_->variables(); }
  int64_t outputs() const override { return model_->outputs(); }
  absl::Status Plan(const Batch& batch, StepState* state) const override {
    return model_->Plan(batch, state);
  }
  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const override;
  absl::Status Predict(const Batch& batch, StepState* state,
                       std::vector<float>* scores) const override;

 private:
  const std::unique_ptr<Model> model_;
  const Device device_;
  const OpenQueue open_;
};

}  // namespace cairn
