// Sums over GPUs, of one process or of several, which NCCL queues on streams.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/collective/collective_group.h"
#include "worker/ops/device_rank.h"

namespace cairn {

// Whether this build has NCCL, which JoinByNccl requires.
bool HasNccl();
// Whether NCCL can be loaded here. kUnimplemented: the build lacks NCCL. kFailedPrecondition: the
// message names the missing part and the next step.
absl::Status NcclStatus();

// The processes whose GPUs sum together.
struct NcclPeers {
  // Every rank of this group joins with its own GPUs. The group carries NCCL's id and finds the
  // process at fault while a GPU waits. It must outlive the ranks, and nothing else may call it
  // while they join or sum. Null: this process alone.
  CollectiveGroup* workers = nullptr;
  absl::Duration connect_timeout = absl::Minutes(1);
  absl::Duration timeout = absl::Minutes(1);  // how long a process waits for the others in a step
};

// One rank for each of this process's devices, in order. Over all processes the ranks are numbered
// in the order of the workers. `devices` must be different GPUs, of all workers. Destroy the ranks
// when no queue uses them, in any order, and when the other processes have their sums (Barrier).
//
// If a process dies, NCCL reports a lost connection without its address, or nothing. A rank that
// has such an error, or waits for more than a second, therefore asks the other processes. An error
// of a rank here aborts `workers`, and with it the sums of every process; an error of another
// process is `workers`' error, which names its rank and address.
//
// kUnimplemented: the build lacks NCCL. kFailedPrecondition: NCCL is not installed, or two of the
// devices are one GPU. kInternal, kDeadlineExceeded: an error of CUDA or NCCL, named. kUnavailable:
// another worker cannot join. If only one worker fails, the others may wait until the timeout.
absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> JoinByNccl(
    absl::Span<const Device> devices, const NcclPeers& peers = {});

// JoinByNccl, or its replacement in tests.
using JoinGpus = std::function<absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>>(
    absl::Span<const Device> devices, const NcclPeers& peers)>;

}  // namespace cairn
