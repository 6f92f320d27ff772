// A model's variables that stay in the memory of a GPU from step to step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/host_memory.h"
#include "common/optimizer/optimizer.h"
#include "worker/ops/device_queue.h"

namespace cairn {

// The float32 values, optimizer slots and gradients of all variables of a model, and the number of
// their updates. Steps whose StepState names this object read the values and write the gradients
// here. Any queue of the same GPU may compute such a step, one at a time.
//
//   Train, then Update if the gradients count, then Train, …; Fetch at any time between steps.
//
// An update runs at the beginning of the next step, or of Fetch: the host never waits for it alone.
// After an error of a step or of Fetch the contents are unspecified. Thread safety: none.
class ResidentVariables {
 public:
  struct Variable {
    size_t floats = 0;
    std::shared_ptr<const Optimizer> optimizer = {};  // those that share one are updated together
    int64_t updates = 0;                              // made so far
  };

  // Allocates the memory; Send gives it its contents. `queue` serves only this object.
  // kResourceExhausted: the GPU has too little memory; names the size.
  static absl::StatusOr<std::unique_ptr<ResidentVariables>> Create(
      std::unique_ptr<DeviceQueue> queue, std::vector<Variable> variables);
  ~ResidentVariables();
  ResidentVariables(const ResidentVariables&) = delete;
  ResidentVariables& operator=(const ResidentVariables&) = delete;

  size_t count() const { return variables_.size(); }
  // 1 for the value, and the number of the optimizer's slots.
  size_t parts(size_t v) const { return 1 + variables_[v].optimizer->slots().size(); }
  size_t floats(size_t v) const { return variables_[v].floats; }
  const Optimizer& optimizer(size_t v) const { return *variables_[v].optimizer; }
  int64_t updates(size_t v) const { return variables_[v].updates; }
  void SetUpdates(size_t v, int64_t updates) { variables_[v].updates = updates; }
  // Bytes of all values and slots; of all values and gradients; and of all device memory.
  size_t state_bytes() const { return state_floats_ * sizeof(float); }
  size_t step_bytes() const { return 2 * value_floats_ * sizeof(float); }
  size_t device_bytes() const { return total_floats_ * sizeof(float); }

  // The host's memory for part `part` of a variable: 0 is the value, 1 + s the slot s.
  absl::Span<float> host(size_t v, size_t part) {
    return absl::MakeSpan(host_.data() + parts_[v][part], variables_[v].floats);
  }
  // Copies all values and slots from host() to the device, or from the device to host().
  absl::Status Send();
  absl::Status Fetch();

  // The gradients of the last step count: updates all variables by them.
  void Update();
  // Whether all gradients of the last step are finite.
  bool finite() const { return *flag_ == 0; }
  // The first gradient of the last step that is NaN or infinite; steps after this may be finite.
  struct NotFinite {
    size_t variable = 0;
    size_t index = 0;
    float value = 0;
  };
  absl::StatusOr<NotFinite> FindNotFinite();

  // For steps: device memory, and the work at a step's beginning and end.
  const float* value(size_t v) const { return device_ + parts_[v][0]; }
  float* gradient(size_t v) const { return device_ + gradients_[v]; }
  void BeginStep(DeviceQueue& queue);
  void EndStep(DeviceQueue& queue);

 private:
  ResidentVariables(std::unique_ptr<DeviceQueue> queue, std::vector<Variable> variables);
  absl::Status Allocate();

  const std::unique_ptr<DeviceQueue> queue_;
  std::vector<Variable> variables_;
  // Offsets in floats. The host has the values and slots at the same offsets; the gradients follow
  // them on the device, small ones first.
  std::vector<std::array<size_t, Optimizer::kMaxSlots + 1>> parts_;
  std::vector<size_t> gradients_;
  size_t value_floats_ = 0;
  size_t state_floats_ = 0;
  size_t total_floats_ = 0;
  std::vector<std::array<void*, Optimizer::kMaxSlots>> slots_;
  HostVector<float> host_;
  float* device_ = nullptr;
  float* flag_ = nullptr;  // in page-locked host memory: 1 if a gradient is not finite
  bool pending_ = false;   // an update that is not queued yet
};

}  // namespace cairn
