#include "worker/trainer/devices/step_devices.h"

#include "common/status.h"
#include "worker/models/device_step.h"

namespace cairn {

StepDevices::Placement& StepDevices::Placement::operator=(Placement&& other) noexcept {
  if (this == &other) return *this;
  End();
  devices_ = other.devices_;
  device_ = other.device_;
  state_ = std::exchange(other.state_, nullptr);
  return *this;
}

void StepDevices::Placement::End() {
  if (state_ == nullptr) return;
  absl::MutexLock lock(&devices_->mutex_);
  devices_->free_[device_].push_back(std::exchange(state_->device, nullptr));
  state_ = nullptr;
}

absl::StatusOr<StepDevices::Placement> StepDevices::Place(Device device, StepState* state) {
  if (device.is_cpu() || state->device != nullptr) return Placement();
  {
    absl::MutexLock lock(&mutex_);
    std::vector<std::shared_ptr<StepDevice>>& free = free_[device];
    if (!free.empty()) {
      state->device = std::move(free.back());
      free.pop_back();
    }
  }
  if (state->device == nullptr) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> queue, open_(device));
    state->device = std::make_shared<StepDevice>(std::move(queue));
  }
  return Placement(this, device, state);
}

}  // namespace cairn
