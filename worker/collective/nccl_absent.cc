// Builds without CUDA or NCCL.
#include "worker/collective/nccl_group.h"

namespace cairn {

bool HasNccl() { return false; }

absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectNccl(CollectiveGroup&, const NcclOptions&,
                                                             Deadline) {
  return absl::UnimplementedError(
      "NCCL: this build has none; configure it with -Dcuda=enabled where CUDA and NCCL are "
      "installed, or use the implementation RING");
}

}  // namespace cairn
