// Models on the devices that a job names.
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

// What `config` names, one entry a replica; a GPU may be there several times. Where it names none:
// every usable GPU (the first one, for types that compute on one device), else cpu:0.
// kInvalidArgument: a GPU that this process cannot use; says which there are.
absl::StatusOr<std::vector<Device>> DevicesOf(const StrategyConfig& config);

// "gpu:0, gpu:1".
std::string DevicesText(absl::Span<const Device> devices);

// Has `state` computed on `device` from its next step on. Errors as `open`, which is called for a
// GPU the first time.
absl::Status PlaceStep(Device device, const OpenQueue& open, StepState* state);

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
      : model_(std::move(model)), device_(device), open_(std::move(open)) {}

  const Model& model() const { return *model_; }
  Device device() const { return device_; }
  const OpenQueue& open() const { return open_; }

 private:
  const std::unique_ptr<Model> model_;
  const Device device_;
  const OpenQueue open_;
};

// A model with all of its steps computed on one device.
class DeviceModel : public PlacedModel {
 public:
  DeviceModel(std::unique_ptr<Model> model, Device device, OpenQueue open = OpenGpuQueue)
      : PlacedModel(std::move(model), device, std::move(open)) {}

  absl::StatusOr<double> Train(const Batch& batch, StepState* state) const override;
};

}  // namespace cairn
