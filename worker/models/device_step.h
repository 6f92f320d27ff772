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
#include "worker/ops/sum_order.h"

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
  size_t bytes() const { return bytes_; }

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
  // All ranks, also of other processes, receive the sums; a root copies its sum to the host, unless
  // the variables stay on the device (StepState::resident).
  bool everywhere = false;
};

// The queue and the memory with which a device computes steps.
// The input and the small variables go to the device in one copy. Larger ones go apart, directly
// from their HostVectors if those are page-locked, and run beside the first ops. Gradients return
// while the device runs the rest of the step, small ones together. With sums, the devices first sum
// the gradients, in groups of at least kSumFloats.
class StepDevice {
 public:
  explicit StepDevice(std::unique_ptr<DeviceQueue> queue);

  // Whether a gradient of this many floats is copied together with its neighbours.
  static constexpr bool IsSmall(size_t floats) { return floats * sizeof(float) <= kSmallBytes; }

  // Begins a step. It ends with End; destroying the result abandons it. One step at a time.
  absl::StatusOr<std::unique_ptr<StepView>> Begin(const Batch& batch, StepState* state);

  // Allocates the memory that Begin needs; the gradients must have their sizes. Errors as Begin.
  absl::Status Reserve(const Batch& batch, const StepState& state);
  // Whether a step of at least this many rows has trained here. Then a step of `rows` rows rarely
  // allocates memory.
  bool HasTrained(int64_t rows) const { return rows <= trained_rows_; }

  // Sets how gradients leave the device in later steps. With sums, only the StepState of a
  // gradient's root receives the gradient, and a step allocates nothing, because an allocation may
  // wait for all queued work of a GPU, including sums that wait for this step. A step that needs
  // memory takes part in the sums and then fails; outgrown() is true.
  void SetSums(const StepSums& sums);
  bool outgrown() const { return outgrown_; }

 private:
  class Step;

  // Offsets of the parts of a step in the device's memory. Staged parts have the same offsets in
  // page-locked memory of the host; large parts that are page-locked themselves come after them.
  struct Layout {
    size_t labels = 0, dense = 0, row_offsets = 0, columns = 0, values = 0, positions = 0;
    std::vector<size_t> variables;
    std::vector<size_t> gradients;
    size_t order = 0;         // of sums, if they are deterministic
    size_t early_bytes = 0;   // of staged input and small values, which are at the beginning
    size_t staged_bytes = 0;  // of all staged parts
    size_t bytes = 0;
    bool recurs = false;  // whether a later step may make the same calls
  };
  static Layout LayOut(const Batch& batch, const StepState& state, bool deterministic);
  absl::Status Reserve(const Layout& layout);

  // A copy of this size takes about as long as starting another copy.
  static constexpr size_t kSmallBytes = size_t{64} << 10;
  // Gradients are copied out when this much is ready.
  static constexpr size_t kOutBytes = size_t{256} << 10;
  // The dense columns go in up to four groups of rows of at least this size: 80 us of copying,
  // which is longer than the product of a quarter of 4,096 rows with 1,024 columns.
  static constexpr size_t kDenseBytes = size_t{4} << 20;
  // The step's last large gradient is computed and copied in parts if it is this large.
  static constexpr size_t kPartsBytes = size_t{2} << 20;
  // Copies and products dominate larger steps; deferring their calls would only delay them.
  static constexpr size_t kRecurringBytes = size_t{4} << 20;
  // Sums are started in groups of at least this many floats: one call for sums costs tens of
  // microseconds, as much as copying them.
  static constexpr size_t kSumFloats = size_t{1} << 18;

  const std::unique_ptr<DeviceQueue> queue_;
  StepMemory device_, host_;
  std::vector<StepMemory> buffers_;  // the model's buffers, by number
  std::vector<StepMemory> fetched_;  // in host memory
  SumOrderBuilder order_;
  StepSums sums_;
  bool outgrown_ = false;
  int64_t trained_rows_ = 0;
};

}  // namespace cairn
