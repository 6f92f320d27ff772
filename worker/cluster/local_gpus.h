// Divides this machine's GPUs among the processes that a launcher started on it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/local_gpus.h"

namespace cairn {

// Returns which of `gpus` GPUs, numbered from 0, process `rank` of `size` on a machine uses: a
// separate share for each process or, if there are fewer GPUs than processes, one GPU that several
// processes share. Without a valid rank: all GPUs.
std::vector<int32_t> ShareOfGpus(int32_t gpus, int32_t rank, int32_t size);
// Like ShareOfGpus, with the rank and the size that a launcher puts into the environment:
// $LOCAL_RANK and $LOCAL_WORLD_SIZE, or, in a step of Slurm, $SLURM_LOCALID and this node's number
// of tasks. If Slurm binds GPUs to tasks, so that this process sees fewer than $SLURM_GPUS_ON_NODE,
// it may use all that it sees.
std::vector<int32_t> OwnGpus(int32_t gpus);

}  // namespace cairn
