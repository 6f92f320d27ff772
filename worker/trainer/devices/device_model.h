// Places models on the devices that a job names.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/device.h"
#include "worker/models/model.h"
#include "worker/ops/device_queue.h"
#include "worker/trainer/devices/step_devices.h"

namespace cairn {

// What `config` names, one entry a replica; a GPU may be there several times. Where it names none:
// this process' share of the usable GPUs (common/local_gpus.h; the first one of them, for types
// that compute on one device), else cpu:0. Logs why GPUs that are there cannot be used.
// kInvalidArgument: a GPU that this process cannot use; says which there are.
absl::StatusOr<std::vector<Device>> DevicesOf(const StrategyConfig& config);

// "gpu:0, gpu:1".
std::string DevicesText(absl::Span<const Device> devices);

// A model over another one that plans on the CPU and predicts on `device`; how it trains is left to
// its kinds.
class PlacedModel : public Model {
 public:
  absl::Span<const VariableSpec> variables() const override { return model_->variables(); }
  int64_t outputs() const override { return model_->outputs(); }
  absl::Status Plan(const Batch& batch, StepState* state) const override {
    return model_->Plan(batch, state);
  }
  absl::Status Predict(const Batch& batch, StepState* state,
                       std::vector<float>* scores) const override;

 protected:
  PlacedModel(std::unique_ptr<Model> model, Device device, OpenQueue open)
      : model_(std::move(model)), device_(device), step_devices_(std::move(open)) {}

  const Model& model() const { return *model_; }
  Device device() const { return device_; }
  StepDevices& step_devices() const { return step_devices_; }

 private:
  const std::unique_ptr<Model> model_;
  const Device device_;
  mutable StepDevices step_devices_;
};

// A model that computes all of its steps on one device.
class DeviceModel : public PlacedModel {
 public:
  DeviceModel(std::unique_ptr<Model> model, Device device, OpenQueue open = OpenGpuQueue)
      : PlacedModel(std::move(model), device, std::move(open)) {}

  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const override;
};

}  // namespace cairn
