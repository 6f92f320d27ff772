// The queues and memory of steps on GPUs, which steps use one after the other.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/device.h"
#include "worker/models/model.h"
#include "worker/ops/device_queue.h"

namespace cairn {

using OpenQueue = std::function<absl::StatusOr<std::unique_ptr<DeviceQueue>>(Device)>;

// Keeps, for each GPU, as many queues as steps are computed on it at the same time, however many
// StepStates there are. Thread safety: every method may be called from several threads at once.
class StepDevices {
 public:
  // The steps of one StepState are computed on a device until this ends.
  class Placement {
   public:
    Placement() = default;
    Placement(StepDevices* devices, Device device, StepState* state)
        : devices_(devices), device_(device), state_(state) {}
    ~Placement() { End(); }
    Placement(Placement&& other) noexcept
        : devices_(other.devices_),
          device_(other.device_),
          state_(std::exchange(other.state_, nullptr)) {}
    Placement& operator=(Placement&& other) noexcept;

   private:
    void End();

    StepDevices* devices_ = nullptr;
    Device device_;
    StepState* state_ = nullptr;  // null: nothing to end
  };

  explicit StepDevices(OpenQueue open) : open_(std::move(open)) {}

  // Makes later steps of `state` run on `device`. Has no effect for a CPU, or if `state` already
  // has a device. Errors as OpenGpuQueue.
  absl::StatusOr<Placement> Place(Device device, StepState* state);

 private:
  const OpenQueue open_;
  absl::Mutex mutex_;
  // The devices that no step uses.
  absl::flat_hash_map<Device, std::vector<std::shared_ptr<StepDevice>>> free_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
