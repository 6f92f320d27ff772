#include "worker/collective/cross_device_ops.h"

#include "common/errors.h"

namespace cairn {

absl::string_view CrossDeviceOpsName(CrossDeviceOps ops) {
  switch (ops) {
    case CrossDeviceOps::kReductionToOneDevice: return "ReductionToOneDevice";
    case CrossDeviceOps::kHierarchicalCopy: return "HierarchicalCopyAllReduce";
    case CrossDeviceOps::kNccl: return "NcclAllReduce";
    case CrossDeviceOps::kRing: return "RING";
  }
  return "unknown";
}

absl::Status CheckNumPacks(CrossDeviceOps ops, int64_t num_packs) {
  if (num_packs >= 0) return absl::OkStatus();
  return InvalidArgument(CrossDeviceOpsName(ops), ": num_packs is ", num_packs,
                         "; it must be >= 0, and 0 means no packing");
}

HierarchicalPlan PlanHierarchicalCopy(int devices, int64_t pack) {
  HierarchicalPlan plan;
  plan.main = static_cast<int>(pack % devices);
  if (devices == 1) {
    plan.main_half = {0};
    return plan;
  }
  const int half = devices / 2;
  const bool main_is_low = plan.main < half;
  for (int d = 0; d < devices; ++d) {
    ((d < half) == main_is_low ? plan.main_half : plan.other_half).push_back(d);
  }
  return plan;
}

}  // namespace cairn
