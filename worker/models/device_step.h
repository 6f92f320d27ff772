// A model's step in the memory of a device.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/models/step_view.h"
#include "worker/ops/device_queue.h"
#include "worker/ops/device_rank.h"

namespace cairn {

// Device or host memory that grows and is reused step after step. Thread safety: none.
class StepMemory {
 public:
  enum class Place { kDevice, kHost };

  StepMemory(DeviceQueue& queue, Place place) : queue_(queue), place_(place) {}
  ~StepMemory() { Free(); }
  StepMemory(StepMemory&& other) noexcept;
  StepMemory(const StepMemory&) = delete;
  StepMemory& operator=(const StepMemory&) = delete;
  StepMemory& operator=(StepMemory&&) = delete;

  // Makes the memory at least `bytes`; its contents are lost if it has to grow.
  absl::Status Reserve(size_t bytes);
  // Whether Reserve would not allocate.
  bool Has(size_t bytes) const { return bytes <= bytes_; }
  std::byte* data() const { return data_; }

 private:
  void Free();

  DeviceQueue& queue_;
  const Place place_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// A step's part in the sums of gradients over several devices.
struct StepSums {
  DeviceRank* rank = nullptr;   // null: no sums
  int number = 0;               // the rank's number
  float weight = 1;             // weight of this step's gradients
  absl::Span<const int> roots;  // by variable: the rank that receives the sum; -1: not summed
};

// A queue and memory with which a StepState is computed on a device. Values are copied to the
// device one variable after the other, and ops wait only for those that they use. Gradients are
// copied back as they are done, in parallel with the rest of the step: each by itself, or summed
// with other devices' first, in groups of kSumFloats or more.
class StepDevice {
 public:
  explicit StepDevice(std::unique_ptr<DeviceQueue> queue);

  // Begins a step, which ends with its End or is abandoned when the result is destroyed. One at a
  // time.
  absl::StatusOr<std::unique_ptr<StepView>> Begin(const Batch& batch, StepState* state);

  // Allocates the memory that Begin would; the gradients must have their sizes. Errors as Begin.
  absl::Status Reserve(const Batch& batch, const StepState& state);
  // Whether a step of at least this size has trained here, so that this one will hardly allocate.
  bool HasTrained(int64_t rows) const { return rows <= trained_rows_; }

  // Sets how gradients leave the device, for the steps that begin from now on. With sums, a
  // gradient is in the StepState of its root only, and a step allocates nothing: an allocation may
  // wait for all work queued on GPUs, which may include sums that wait for this step's. A step that
  // needs memory still takes part in the sums, then fails, and outgrown() is true.
  void SetSums(const StepSums& sums);
  bool outgrown() const { return outgrown_; }

 private:
  class Step;

  // Offsets of the parts of a step, the same in the device's memory and in the host's.
  struct Layout {
    size_t labels = 0, dense = 0, row_offsets = 0, columns = 0, values = 0, positions = 0;
    std::vector<size_t> variables;
    std::vector<size_t> gradients;
    size_t bytes = 0;
  };
  static Layout LayOut(const Batch& batch, const StepState& state);
  absl::Status Reserve(size_t bytes);

  // The number of floats whose copy takes as long as the overhead of a call for sums (tens of us).
  static constexpr size_t kSumFloats = size_t{1} << 18;

  const std::unique_ptr<DeviceQueue> queue_;
  StepMemory device_, host_;
  std::vector<StepMemory> buffers_;  // the model's buffers, by number
  std::vector<StepMemory> fetched_;  // in host memory
  StepSums sums_;
  bool outgrown_ = false;
  int64_t trained_rows_ = 0;
};

}  // namespace cairn
