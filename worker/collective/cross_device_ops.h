// The algorithms that reduce values of several devices, with tf.distribute's names. The strategies
// compute the sums (worker/strategy).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

enum class CrossDeviceOps {
  kReductionToOneDevice,  // one device adds up all values and sends the sum out
  kHierarchicalCopy,      // each half of the devices adds up, then the two sums
  kNccl,                  // between GPUs, JoinByNccl
  kRing,                  // between processes, ConnectGloo
};

// "ReductionToOneDevice", "HierarchicalCopyAllReduce", "NcclAllReduce", "RING".
absl::string_view CrossDeviceOpsName(CrossDeviceOps ops);

// kInvalidArgument: num_packs < 0. 0: gradients are not packed.
absl::Status CheckNumPacks(CrossDeviceOps ops, int64_t num_packs);

// The order of additions for pack `pack` on `devices` devices: each half adds up its values, and
// the sums of both halves are added on `main`.
struct HierarchicalPlan {
  int main = 0;                      // pack mod devices
  std::vector<int> main_half = {};   // in order of addition
  std::vector<int> other_half = {};  // empty if there is one device
};
// devices >= 1, pack >= 0.
HierarchicalPlan PlanHierarchicalCopy(int devices, int64_t pack);

}  // namespace cairn
