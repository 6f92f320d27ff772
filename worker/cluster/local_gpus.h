// Divides this machine's GPUs among the processes that a launcher started on it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/local_gpus.h"

namespace cairn {

// The share of `gpus` GPUs, numbered from 0, that process `rank` of `size` on a machine has: some
// of its own or, if there are fewer GPUs than processes, one that it shares. Without a valid rank:
// all.
std::vector<int32_t> ShareOfGpus(int32_t gpus, int32_t rank, int32_t size);
// The same for the rank and the size that launchers tell their processes: $LOCAL_RANK and
// $LOCAL_WORLD_SIZE, or, in a step of Slurm, $SLURM_LOCALID and this node's number of tasks. If
// Slurm binds GPUs to tasks, so that this process sees fewer than $SLURM_GPUS_ON_NODE, it may use
// all that it sees.
std::vector<int32_t> OwnGpus(int32_t gpus);

}  // namespace cairn
