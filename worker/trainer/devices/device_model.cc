#include "worker/trainer/devices/device_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/cluster/local_gpus.h"
#include "worker/models/device_step.h"

namespace cairn {
namespace {

absl::Status CheckUsable(Device device) {
  if (device.is_cpu() || device.index < UsableGpuCount()) return absl::OkStatus();
  // The message says why: built without CUDA, no driver, fewer GPUs.
  return AsBadInput(Annotate(OpenGpuQueue(device).status(), "strategy.devices"));
}

}  // namespace

absl::StatusOr<std::vector<Device>> DevicesOf(const StrategyConfig& config) {
  std::vector<Device> devices;
  for (const std::string& text : config.devices) {
    ASSIGN_OR_RETURN(const Device device, ParseDevice(text));
    RETURN_IF_ERROR(CheckUsable(device));
    devices.push_back(device);
  }
  if (!devices.empty()) return devices;
  const bool one = config.type == "one_device" || config.type == "default";
  const absl::Status usable = GpuStatus();
  LOG_IF(WARNING, !usable.ok()) << "computes on CPUs: " << usable.message();
  for (const int32_t gpu : OwnGpus(UsableGpuCount())) {
    if (!one || devices.empty()) devices.push_back(Gpu(gpu));
  }
  if (devices.empty()) devices.push_back(Cpu(0));
  return devices;
}

std::string DevicesText(absl::Span<const Device> devices) {
  return absl::StrJoin(devices, ", ", [](std::string* text, Device device) {
    absl::StrAppend(text, device.text());
  });
}

absl::Status PlacedModel::Predict(const Batch& batch, StepState* state,
                                  std::vector<float>* scores) const {
  ASSIGN_OR_RETURN(const StepDevices::Placement placement, step_devices_.Place(device_, state));
  return model_->Predict(batch, state, scores);
}

absl::StatusOr<double> DeviceModel::Train(const Batch& batch, StepState* state) const {
  ASSIGN_OR_RETURN(const StepDevices::Placement placement, step_devices().Place(device(), state));
  return model().Train(batch, state);
}

}  // namespace cairn
