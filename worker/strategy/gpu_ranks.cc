#include "worker/strategy/gpu_ranks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "worker/ops/device_queue.h"

namespace cairn {
namespace {

// Says why `devices` are not different GPUs that CUDA can use; OK if they are.
absl::Status CheckGpus(absl::Span<const Device> devices) {
  std::set<int> gpus;
  for (const Device device : devices) {
    if (device.is_cpu() || !gpus.insert(PhysicalGpu(device)).second) {
      return FailedPrecondition(
          "NCCL sums between different GPUs, and ", device.text(),
          device.is_cpu() ? " is no GPU" : " shares a GPU with another device");
    }
  }
  return absl::OkStatus();
}

// Returns how many workers are `counted`.
absl::StatusOr<int64_t> CountWorkers(bool counted, const NcclPeers& peers, Deadline deadline) {
  int64_t count = counted ? 1 : 0;
  RETURN_IF_ERROR(
      peers.workers->AllReduce(ReduceOp::kSum, MutableBuffer{DType::kInt64, &count, 1}, deadline));
  return count;
}

}  // namespace

absl::Status CheckNccl(absl::Span<const Device> devices) {
  RETURN_IF_ERROR(CheckGpus(devices));
  if (devices.size() < 2) return absl::FailedPreconditionError("NCCL needs more than one GPU");
  RETURN_IF_ERROR(NcclStatus());
  for (const Device device : devices) {
    if (device.index < UsableGpuCount()) continue;
    return FailedPrecondition("NCCL needs GPUs that CUDA can use; it can use ", UsableGpuCount(),
                              " here");
  }
  return absl::OkStatus();
}

GpuRanks::GpuRanks(std::vector<Device> devices, JoinGpus join, bool required)
    : devices_(std::move(devices)), join_(std::move(join)), required_(required) {}

GpuRanks::GpuRanks(std::vector<std::unique_ptr<DeviceRank>> joined, const NcclPeers& peers)
    : peers_(peers), ranks_(std::move(joined)) {}

bool GpuRanks::Acquire() { return !unavailable_.load() && !taken_.exchange(true); }

void GpuRanks::Release() {
  const bool failed = std::ranges::any_of(
      ranks_, [](const std::unique_ptr<DeviceRank>& rank) { return !rank->Usable().ok(); });
  if (failed && peers_.workers == nullptr) ranks_.clear();
  taken_.store(false);
}

absl::StatusOr<absl::Span<const std::unique_ptr<DeviceRank>>> GpuRanks::Joined() {
  if (peers_.workers != nullptr) RETURN_IF_ERROR(ranks_.front()->Usable());
  if (!ranks_.empty()) return ranks_;
  absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> joined = join_(devices_, {});
  if (joined.ok()) {
    ranks_ = *std::move(joined);
    return ranks_;
  }
  if (required_) return joined.status();
  LOG(WARNING) << "gradients are summed in host memory from now on: " << joined.status().message();
  unavailable_.store(true);
  return absl::Span<const std::unique_ptr<DeviceRank>>();
}

absl::Status GpuRanks::Agree(const absl::Status& own) const {
  if (peers_.workers == nullptr) return own;
  const absl::StatusOr<int64_t> well = CountWorkers(own.ok(), peers_, Deadline::In(peers_.timeout));
  RETURN_IF_ERROR(own);
  RETURN_IF_ERROR(well.status());
  const int64_t failed = peers_.workers->size() - *well;
  if (failed == 0) return absl::OkStatus();
  return Aborted(failed, " of ", peers_.workers->size(),
                 " workers failed in their sums; their own errors say why");
}

absl::StatusOr<std::unique_ptr<GpuRanks>> JoinWorkers(const WorkerGpus& gpus) {
  const NcclPeers& peers = gpus.peers;
  // A worker may fail early while others still wait for it until the timeout.
  const auto count = [&peers](bool counted) {
    return CountWorkers(counted, peers, Deadline::In(2 * peers.connect_timeout));
  };
  if (gpus.implementation == CommunicationImplementation::kRing) return nullptr;
  absl::Status own = CheckGpus(gpus.devices);
  const bool required = gpus.implementation == CommunicationImplementation::kNccl;
  const bool expected = required || own.ok();
  ASSIGN_OR_RETURN(int64_t able, count(own.ok()));
  if (able == peers.workers->size()) {
    absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> joined =
        gpus.join(gpus.devices, peers);
    own = joined.status();
    ASSIGN_OR_RETURN(able, count(own.ok()));
    if (able == peers.workers->size()) return std::make_unique<GpuRanks>(*std::move(joined), peers);
  }
  // A worker that ends breaks the group, also for workers that still wait for the count above.
  // After this call every worker has it.
  const absl::Status counted = count(required).status();
  if (!required) RETURN_IF_ERROR(counted);
  if (!expected) return nullptr;
  if (own.ok()) {
    own = FailedPrecondition(peers.workers->size() - able, " of ", peers.workers->size(),
                             " workers cannot; their own errors or warnings say why");
  }
  own = Annotate(own, "sums by NCCL");
  if (required) return absl::FailedPreconditionError(own.message());
  LOG(WARNING) << own.message() << "; sums go between CPUs";
  return nullptr;
}

}  // namespace cairn
