// A model's variables that stay in the memory of GPUs from step to step.
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

struct VariableUse;

// The float32 values, optimizer slots and gradients of all variables of a model, and the number of
// their updates. Each replica has a copy of all of this on its GPU. Steps whose StepState names
// this object and a replica read the values and write the gradients of the replica's copy. Any
// queue of the same GPU may compute such a step, one at a time.
//
//   Train, then Update if the gradients count, then Train, …; Fetch at any time between steps.
//
// With several replicas, each copy must have the gradients that count before Update: the replicas
// sum them on their GPUs, or fetch them, sum them in host memory and send the sums to all copies.
// Then all copies remain the same, bit for bit, because each is updated by the same launch.
//
// An update runs at the beginning of the next step, or of Fetch: the host never waits for it alone.
// After an error of a step, of Fetch, FetchGradients or SendGradients the contents are unspecified.
// Thread safety: BeginStep, EndStep and FetchGradients may run at once for different replicas, in
// any threads; apart from that, one thread at a time.
class ResidentVariables {
 public:
  struct Variable {
    size_t floats = 0;
    std::shared_ptr<const Optimizer> optimizer = {};  // those that share one are updated together
    int64_t updates = 0;                              // made so far
  };

  // Allocates a copy on the GPU of each queue, one for each replica; Send gives it its contents.
  // The queues, at least one, serve only this object.
  // kResourceExhausted: a GPU has too little memory; names the size.
  static absl::StatusOr<std::unique_ptr<ResidentVariables>> Create(
      std::vector<std::unique_ptr<DeviceQueue>> queues, std::vector<Variable> variables);
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
  // Bytes of a copy: of all values and slots; of all values and gradients; of all device memory.
  size_t state_bytes() const { return state_floats_ * sizeof(float); }
  size_t step_bytes() const { return 2 * value_floats_ * sizeof(float); }
  size_t device_bytes() const { return total_floats_ * sizeof(float); }

  // The host's memory for part `part` of a variable: 0 is the value, 1 + s the slot s.
  absl::Span<float> host(size_t v, size_t part) {
    return absl::MakeSpan(host_.data() + parts_[v][part], variables_[v].floats);
  }
  // Copies all values and slots from host() to every GPU, or from the first GPU to host().
  absl::Status Send();
  absl::Status Fetch();

  // For a step whose gradients are summed in host memory: copies those of one replica to the
  // `gradient` of each use, which gets the variable's size; and copies those of `uses` to every
  // GPU, in place of its own. SendGradients does nothing if the uses have no gradients.
  absl::Status FetchGradients(size_t replica, std::vector<VariableUse>* uses);
  absl::Status SendGradients(const std::vector<VariableUse>& uses);

  // The gradients of the last step count: updates all variables by them, in every copy.
  void Update();
  // Whether all gradients of the last step are finite. The first GPU finds out, because all copies
  // have the same.
  bool finite() const { return *flag_ == 0; }
  // The first gradient of the last step that is NaN or infinite.
  struct NotFinite {
    size_t variable = 0;
    size_t index = 0;
    float value = 0;
  };
  absl::StatusOr<NotFinite> FindNotFinite();

  // For steps of a replica: device memory, and the work at a step's beginning and end. EndStep is
  // the step's last op.
  const float* value(size_t replica, size_t v) const {
    return copies_[replica].device + parts_[v][0];
  }
  float* gradient(size_t replica, size_t v) const {
    return copies_[replica].device + gradients_[v];
  }
  void BeginStep(size_t replica, DeviceQueue& queue);
  void EndStep(size_t replica, DeviceQueue& queue);

 private:
  // What a replica's GPU has.
  struct Copy {
    std::unique_ptr<DeviceQueue> queue;
    float* device = nullptr;
    bool pending = false;  // an update that is not queued yet
  };

  ResidentVariables(std::vector<std::unique_ptr<DeviceQueue>> queues,
                    std::vector<Variable> variables);
  absl::Status Allocate();
  // Waits for the queues of all copies. Returns the first error.
  absl::Status FinishAll();

  std::vector<Copy> copies_;  // by replica
  std::vector<Variable> variables_;
  // Offsets in floats. The host has the values and slots at the same offsets; the gradients follow
  // them on the device, small ones first.
  std::vector<std::array<size_t, Optimizer::kMaxSlots + 1>> parts_;
  std::vector<size_t> gradients_;
  size_t value_floats_ = 0;
  size_t state_floats_ = 0;
  size_t total_floats_ = 0;
  HostVector<float> host_;
  float* flag_ = nullptr;  // in page-locked host memory: 1 if a gradient is not finite
};

}  // namespace cairn
