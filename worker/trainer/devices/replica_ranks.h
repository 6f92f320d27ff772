// The ranks through which a model's replicas sum gradients on their GPUs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/ops/device_rank.h"

namespace cairn {

// Returns one rank for each device, in their order.
using JoinDevices = std::function<absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>>(
    absl::Span<const Device> devices)>;

// Whether replicas on these devices can sum gradients there: the devices must be different GPUs,
// more than one.
bool CanAddUp(absl::Span<const Device> devices);

// Ranks of `devices`, for one step at a time. They are joined when they are first needed and after
// an error. Thread safety: Take from any thread; the other methods between a true Take and Return,
// one thread at a time.
class ReplicaRanks {
 public:
  // Without `join`, or if the devices cannot sum, there are never any ranks. `required`: a failure
  // to join is an error; otherwise it is a warning, after which no further attempt is made.
  ReplicaRanks(std::vector<Device> devices, JoinDevices join, bool required);

  // False: there are no ranks, or another step has them; then nothing is taken.
  bool Take();
  void Return();

  // Joins the ranks if needed. Empty: they could not be joined; the log says why. Errors: those of
  // `join`, if required.
  absl::StatusOr<absl::Span<const std::unique_ptr<DeviceRank>>> Get();

 private:
  const std::vector<Device> devices_;
  const JoinDevices join_;
  const bool required_;
  std::atomic<bool> taken_ = false;
  std::atomic<bool> none_;
  std::vector<std::unique_ptr<DeviceRank>> ranks_;
};

}  // namespace cairn
