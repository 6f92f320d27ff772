#include "worker/trainer/devices/replica_ranks.h"

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/status.h"
#include "worker/collective/cross_device_ops.h"

namespace cairn {

bool CanAddUp(absl::Span<const Device> devices) {
  return devices.size() > 1 &&
         DefaultCrossDeviceOps({.devices = devices}, CommunicationImplementation::kAuto,
                               /*has_nccl=*/true) == CrossDeviceOps::kNccl;
}

ReplicaRanks::ReplicaRanks(std::vector<Device> devices, JoinDevices join, bool required)
    : devices_(std::move(devices)),
      join_(std::move(join)),
      required_(required),
      none_(join_ == nullptr || !CanAddUp(devices_)) {}

bool ReplicaRanks::Take() { return !none_.load() && !taken_.exchange(true); }

void ReplicaRanks::Return() {
  const bool failed =
      std::any_of(ranks_.begin(), ranks_.end(),
                  [](const std::unique_ptr<DeviceRank>& rank) { return !rank->Check().ok(); });
  if (failed) ranks_.clear();
  taken_.store(false);
}

absl::StatusOr<absl::Span<const std::unique_ptr<DeviceRank>>> ReplicaRanks::Get() {
  if (!ranks_.empty()) return ranks_;
  absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> joined = join_(devices_);
  if (joined.ok()) {
    ranks_ = *std::move(joined);
    return ranks_;
  }
  if (required_) return Annotate(joined.status(), "strategy.cross_device_ops: nccl");
  LOG(WARNING) << "gradients are summed in host memory from now on: " << joined.status().message();
  none_.store(true);
  return absl::Span<const std::unique_ptr<DeviceRank>>();
}

}  // namespace cairn
