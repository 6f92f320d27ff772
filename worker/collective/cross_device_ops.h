// Chooses the algorithm that reduces values of several local devices, as tf.distribute does. The
// strategies compute the sums (worker/strategy/reduce_values.h).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/collective/communication_options.h"

namespace cairn {

enum class CrossDeviceOps {
  kReductionToOneDevice,  // one device adds up all values and sends the sum out
  kHierarchicalCopy,      // each half of the devices adds up, then the two sums
  kNccl,                  // NcclGroup
  kRing,                  // between processes, GlooGroup
};

// "ReductionToOneDevice", "HierarchicalCopyAllReduce", "NcclAllReduce", "RING".
absl::string_view CrossDeviceOpsName(CrossDeviceOps ops);

// kInvalidArgument: num_packs < 0. 0: gradients are not packed.
absl::Status CheckNumPacks(CrossDeviceOps ops, int64_t num_packs);

// The devices of the replicas.
struct ReplicaDevices {
  absl::Span<const Device> devices = {};
  // Whether several of the GPUs are parts of one physical GPU. Implied by a repeated GPU.
  bool virtual_gpus = false;
};

// The algorithm of a strategy over these devices unless the user chooses one.
//   CPUs and GPUs: kReductionToOneDevice. Only CPUs, or GPUs that are not all physical: kRing.
//   Only GPUs: kNccl if `has_nccl` and the options do not request a ring, otherwise kRing.
CrossDeviceOps DefaultCrossDeviceOps(const ReplicaDevices& replicas,
                                     CommunicationImplementation implementation, bool has_nccl);

// The order of additions for pack `pack` on `devices` devices: the members of each half send to the
// half's leader, the leaders' sums are added on `main`, and the result takes the same way back.
struct HierarchicalPlan {
  int main = 0;          // pack mod devices
  int other_leader = 0;  // leader of the half without `main`; `main` if there is one device
  std::vector<int> main_half = {};   // in order of addition
  std::vector<int> other_half = {};  // empty if there is one device
};
// devices >= 1, pack >= 0.
HierarchicalPlan PlanHierarchicalCopy(int devices, int64_t pack);

}  // namespace cairn
