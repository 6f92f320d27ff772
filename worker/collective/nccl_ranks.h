// Sums over the GPUs of one process, queued on streams by NCCL.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/ops/device_rank.h"

namespace cairn {

// One rank a device, in their order, connected within a minute; `devices` are different GPUs. Ranks
// are destroyed when no queue uses them, in any order. kUnimplemented: the build has no NCCL.
// kFailedPrecondition: NCCL is not installed. kInternal, kDeadlineExceeded: CUDA's or NCCL's own
// error, named.
absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> JoinByNccl(
    absl::Span<const Device> devices);

}  // namespace cairn
