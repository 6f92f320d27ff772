// Builds without CUDA or NCCL.
#include "worker/collective/nccl_group.h"

namespace cairn {

bool HasNccl() { return false; }

absl::Status NcclStatus() {
  return absl::UnimplementedError(
      "NCCL: this build has none; configure it with -Dcuda=enabled where CUDA and NCCL are "
      "installed, or use the implementation RING");
}

absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectNccl(CollectiveGroup&, const NcclOptions&,
                                                             Deadline) {
  return NcclStatus();
}

}  // namespace cairn
