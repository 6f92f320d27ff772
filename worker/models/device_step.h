// A step in the memory of a device.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "worker/models/step_view.h"
#include "worker/ops/device_queue.h"

namespace cairn {

// Device and host memory that grows and is used again step after step. Thread safety: none.
class StepMemory {
 public:
  enum class Place { kDevice, kHost };

  StepMemory(DeviceQueue& queue, Place place) : queue_(queue), place_(place) {}
  ~StepMemory() { Free(); }
  StepMemory(StepMemory&& other) noexcept;
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;
  StepMemory& operator=(StepMemory&&) = delete;

  // At least `bytes`; what was there is lost if it has to grow.
  absl::Status Reserve(size_t bytes);
  std::byte* data() const { return data_; }

 private:
  void Free();

  DeviceQueue& queue_;
  const Place place_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// What a StepState needs to be computed on a device: a queue and memory of its own.
// Values go to the device one variable after the other, and ops wait for those that they use;
// gradients come back as they are done, beside the rest of the step.
class StepDevice {
 public:
  explicit StepDevice(std::unique_ptr<DeviceQueue> queue);

  // A step that is on its way; ends with its End, or is given up with it. One at a time.
  absl::StatusOr<std::unique_ptr<StepView>> Begin(const Batch& batch, StepState* state);

 private:
  class Step;

  // Where each thing is in the device's memory and, at the same distance, in the host's.
  struct Layout {
    size_t labels = 0, dense = 0, row_offsets = 0, columns = 0, values = 0, positions = 0;
    std::vector<size_t> variables;
    std::vector<size_t> gradients;
    size_t bytes = 0;
  };
  static Layout LayOut(const Batch& batch, const StepState& state);

  const std::unique_ptr<DeviceQueue> queue_;
  StepMemory device_, host_;
  std::vector<StepMemory> buffers_;  // of the model, by number
  std::vector<StepMemory> fetched_;  // host
};

}  // namespace cairn
