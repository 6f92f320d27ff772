// The ranks by which a model's replicas add up gradients on their GPUs.
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

// One rank a device, in their order.
using JoinDevices = std::function<absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>>(
    absl::Span<const Device> devices)>;

// Whether gradients of replicas on these devices can be added up there: different GPUs, more than
// one.
bool CanAddUp(absl::Span<const Device> devices);

// Ranks of `devices`, joined when they are first needed and after an error, for one step at a time.
// Thread safety: Take from any thread; the others between its true and Return, one thread at a
// time.
class ReplicaRanks {
 public:
  // No `join`, or devices that cannot: there are never any. `required`: that they cannot be joined
  // is an error, not only a warning and the end of trying.
  ReplicaRanks(std::vector<Device> devices, JoinDevices join, bool required);

  // False: there are none, or another step has them; nothing is taken then.
  bool Take();
  void Return();

  // Joined if need be. None: they could not be, which the log says. Errors: `join`'s, if required.
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
