// Counts the GPUs that this process may use, without a GPU library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

// Number of this machine's NVIDIA device files that CUDA_VISIBLE_DEVICES leaves visible.
int32_t LocalGpuCount();

// The same for device files nvidia0, nvidia1, … in `device_folder` and a given value of
// CUDA_VISIBLE_DEVICES (std::nullopt: not set). As in CUDA, the first invalid entry ends the list;
// a valid entry is a number below the count of files, or begins with GPU- or MIG-.
int32_t CountGpus(const std::string& device_folder, const std::optional<std::string>& visible);

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
