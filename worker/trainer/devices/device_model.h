// Places models on the devices that a job names.
#pragma once

#include <functional>
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

namespace cairn {

using OpenQueue = std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>(Device)>;

// The devices that `config` names, one entry for each replica; a GPU may occur several times. If it
// names none: every usable GPU (the first one, for types that compute on one device), else cpu:0.
// kInvalidArgument: a GPU that this process cannot use; lists the usable ones.
absl::StatusOr<std::vector<Device>> DevicesOf(const StrategyConfig& config);

// "gpu:0, gpu:1".
std::string DevicesText(absl::Span<const Device> devices);

// Makes `state` compute on `device` from its next step on. The first time for a GPU it calls
// `open`, and returns its errors.
absl::Status PlaceStep(Device device, const OpenQueue& open, StepState* state);

// Wraps a model: plans on the CPU and predicts on `device`. Subclasses decide how to train.
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
      : model_(std::move(model)), device_(device), open_(std::move(open)) {}

  const Model& model() const { return *model_; }
  Device device() const { return device_; }
  const OpenQueue& open() const { return open_; }

 private:
  const std::unique_ptr<Model> model_;
  const Device device_;
  const OpenQueue open_;
};

// A model that computes all of its steps on one device.
class DeviceModel : public PlacedModel {
 public:
  DeviceModel(std::unique_ptr<Model> model, Device device, OpenQueue open = OpenGpuQueue)
      : PlacedModel(std::move(model), device, std::move(open)) {}

  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const override;
};

}  // namespace cairn
