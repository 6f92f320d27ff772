#include "worker/cluster/local_gpus.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/numbers.h"
#include "worker/cluster/slurm_text.h"

namespace cairn {
namespace {

std::optional<int32_t> EnvironmentNumber(const char* variable) {
  const char* const text = std::getenv(variable);
  int32_t number = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

// The tasks of Slurm's step on node `node`; 0: unknown.
int32_t SlurmTasksOn(int32_t node) {
  const char* const text = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  if (text == nullptr || node < 0) return 0;
  const absl::StatusOr<std::vector<int32_t>> tasks = ExpandTasksPerNode(text);
  const auto at = static_cast<size_t>(node);
  return tasks.ok() && at < tasks->size() ? (*tasks)[at] : 0;
}

}  // namespace

std::vector<int32_t> ShareOfGpus(int32_t gpus, int32_t rank, int32_t size) {
  int32_t first = 0, end = gpus;
  if (rank >= 0 && rank < size && gpus >= size) {
    // The first gpus mod size processes have one more.
    first = rank * (gpus / size) + std::min(rank, gpus % size);
    end = first + gpus / size + (rank < gpus % size ? 1 : 0);
  } else if (rank >= 0 && rank < size && gpus > 0) {
    first = rank % gpus;
    end = first + 1;
  }
  std::vector<int32_t> share;
  for (int32_t gpu = first; gpu < end; ++gpu) share.push_back(gpu);
  return share;
}

std::vector<int32_t> OwnGpus(int32_t gpus) {
  const std::optional<int32_t> rank = EnvironmentNumber("LOCAL_RANK");
  const std::optional<int32_t> size = EnvironmentNumber("LOCAL_WORLD_SIZE");
  if (rank.has_value() && size.has_value()) return ShareOfGpus(gpus, *rank, *size);
  const std::optional<int32_t> task = EnvironmentNumber("SLURM_LOCALID");
  if (!task.has_value() || gpus < EnvironmentNumber("SLURM_GPUS_ON_NODE").value_or(0)) {
    return ShareOfGpus(gpus, 0, 1);
  }
  return ShareOfGpus(gpus, *task, SlurmTasksOn(EnvironmentNumber("SLURM_NODEID").value_or(0)));
}

}  // namespace cairn
