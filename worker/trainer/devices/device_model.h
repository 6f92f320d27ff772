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

// The devices that `config` names, one entry per replica; a GPU may occur several times. If it
// names none: this process's share of the usable GPUs (worker/cluster/local_gpus.h; only the first
// of them for types that compute on one device), or cpu:0 if there are none. Logs why the machine's
// GPUs cannot be used. kInvalidArgument: this process cannot use a named GPU; lists the usable
// ones.
absl::StatusOr<std::vector<Device>> DevicesOf(const StrategyConfig& config);

// "gpu:0, gpu:1".
std::string DevicesText(absl::Span<const Device> devices);

// Wraps a model: plans on the CPU and predicts on `device`. Derived classes train.
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
