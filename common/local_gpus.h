// Counts the GPUs that this process may use, without a GPU library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cairn {

// Counts this machine's NVIDIA device files that CUDA_VISIBLE_DEVICES leaves visible.
int32_t LocalGpuCount();

// Counts the device files nvidia0, nvidia1, … in `device_folder` that `visible`, a value of
// CUDA_VISIBLE_DEVICES (std::nullopt: not set), leaves visible. As in CUDA, the first invalid entry
// ends the list; a valid entry is a number below the count of files, or begins with GPU- or MIG-.
int32_t CountGpus(const std::string& device_folder, const std::optional<std::string>& visible);

}  // namespace cairn
