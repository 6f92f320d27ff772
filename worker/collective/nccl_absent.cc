// For builds without CUDA or NCCL.
#include "worker/collective/nccl_ranks.h"

namespace cairn {

bool HasNccl() { return false; }

absl::Status NcclStatus() {
  return absl::UnimplementedError(
      "NCCL: this build has none; configure it with -Dcuda=enabled where CUDA and NCCL are "
      "installed, or use the implementation RING");
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceRank>>> JoinByNccl(absl::Span<const Device>,
                                                                    const NcclPeers&) {
  return NcclStatus();
}

}  // namespace cairn
