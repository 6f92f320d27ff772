// A step in the memory of a device.
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
  // Whether Reserve would allocate nothing.
  bool Has(size_t bytes) const { return bytes <= bytes_; }
  std::byte* data() const { return data_; }

 private:
  void Free();

  DeviceQueue& queue_;
  const Place place_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// A step's part in sums of gradients over several devices.
struct StepSums {
  DeviceRank* rank = nullptr;   // null: it has none
  int number = 0;               // of the rank
  float weight = 1;             // of this step's gradients
  absl::Span<const int> roots;  // by variable: the rank that gets the sum; -1: it is not added up
};

// What a StepState needs to be computed on a device: a queue and memory of its own.
// The input and small values go to the device in one copy. A larger variable's values go when the
// first op that uses them is called, beside the ops before it. Gradients come back as they are
// done, beside the rest of the step, small ones together: or added up with other devices' first, in
// groups of kSumFloats or more.
class StepDevice {
 public:
  explicit StepDevice(std::unique_ptr<DeviceQueue> queue);

  // A step that is on its way; ends with its End, or is given up with it. One at a time.
  absl::StatusOr<std::unique_ptr<StepView>> Begin(const Batch& batch, StepState* state);

  // The memory that Begin would allocate; gradients have their sizes. Errors as Begin.
  absl::Status Reserve(const Batch& batch, const StepState& state);
  // Whether a step as large has trained here before, so that this one will hardly allocate more.
  bool HasTrained(int64_t rows) const { return rows <= trained_rows_; }

  // How the gradients of the steps that begin from here on leave the device. With sums a step's
  // gradients are in the StepState of the roots alone, and a step allocates nothing: an allocation
  // may wait for all that GPUs have queued, sums among it that wait for this step's. One that
  // needs memory takes part in the sums all the same, fails, and outgrown() says so.
  void SetSums(const StepSums& sums);
  bool outgrown() const { return outgrown_; }

 private:
  class Step;

  // Where each thing is in the device's memory and, at the same distance, in the host's.
  struct Layout {
    size_t labels = 0, dense = 0, row_offsets = 0, columns = 0, values = 0, positions = 0;
    std::vector<size_t> variables;
    std::vector<size_t> gradients;
    size_t early_bytes = 0;  // of the input and small values, which are at the beginning
    size_t bytes = 0;
  };
  static Layout LayOut(const Batch& batch, const StepState& state);
  absl::Status Reserve(size_t bytes);

  // A copy of so much takes about as long as starting another one.
  static constexpr size_t kSmallBytes = size_t{64} << 10;
  // So much that has come together is copied out.
  static constexpr size_t kOutBytes = size_t{256} << 10;
  // What a call for sums costs (tens of us) is that of copying so much.
  static constexpr size_t kSumFloats = size_t{1} << 18;

  const std::unique_ptr<DeviceQueue> queue_;
  StepMemory device_, host_;
  std::vector<StepMemory> buffers_;  // of the model, by number
  std::vector<StepMemory> fetched_;  // host
  StepSums sums_;
  bool outgrown_ = false;
  int64_t trained_rows_ = 0;
};

}  // namespace cairn
