// Sums over the GPUs of one process, which NCCL queues on streams.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/ops/device_rank.h"

namespace cairn {

// One rank for each device, in order, connected within a minute; `devices` must be different GPUs.
// Destroy ranks when no queue uses them, in any order. kUnimplemented: the build lacks NCCL.
// kFailedPrecondition: NCCL is not installed. kInternal, kDeadlineExceeded: an error of CUDA or
// NCCL, named.
absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> JoinByNccl(
    absl::Span<const Device> devices);

}  // namespace cairn
