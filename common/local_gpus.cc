#include "common/local_gpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

bool IsGpuFile(const std::string& name) {
  constexpr absl::string_view kPrefix = "nvidia";
  return absl::StartsWith(name, kPrefix) && name.size() > kPrefix.size() &&
         std::all_of(name.begin() + kPrefix.size(), name.end(),
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
}

std::optional<int32_t> Number(const char* variable) {
  const char* const text = std::getenv(variable);
  int32_t number = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

// "3(x2),1": three tasks on each of nodes 0 and 1, one on node 2.
std::optional<int32_t> TasksOnNode(int32_t node) {
  const char* const text = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  if (text == nullptr) return std::nullopt;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> words = absl::StrSplit(part, absl::ByAnyChar("(x)"));
    int32_t tasks = 0, nodes = 1;
    if (!absl::SimpleAtoi(words[0], &tasks)) return std::nullopt;
    // "3(x2)" is split into "3", "", "2", "".
    if (words.size() == 4 && !absl::SimpleAtoi(words[2], &nodes)) return std::nullopt;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

int32_t CountFiles(const std::string& folder) {
  int32_t count = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsGpuFile(entry->path().filename().string())) ++count;
  }
  return count;
}

}  // namespace

int32_t CountGpus(const std::string& device_folder, const std::optional<std::string>& visible) {
  const int32_t files = CountFiles(device_folder);
  if (!visible.has_value() || files == 0) return files;
  int32_t count = 0;
  for (absl::string_view entry : absl::StrSplit(*visible, ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    int32_t index = 0;
    const bool named = absl::StartsWith(entry, "GPU-") || absl::StartsWith(entry, "MIG-");
    const bool numbered = absl::SimpleAtoi(entry, &index) && index >= 0 && index < files;
    if (!named && !numbered) break;
    ++count;
  }
  return count;
}

int32_t LocalGpuCount() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return CountGpus("/dev",
                   visible == nullptr ? std::nullopt : std::make_optional<std::string>(visible));
}

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
  const std::optional<int32_t> rank = Number("LOCAL_RANK"), size = Number("LOCAL_WORLD_SIZE");
  if (rank.has_value() && size.has_value()) return ShareOfGpus(gpus, *rank, *size);
  const std::optional<int32_t> task = Number("SLURM_LOCALID");
  if (!task.has_value() || gpus < Number("SLURM_GPUS_ON_NODE").value_or(0)) {
    return ShareOfGpus(gpus, 0, 1);
  }
  return ShareOfGpus(gpus, *task, TasksOnNode(Number("SLURM_NODEID").value_or(0)).value_or(0));
}

}  // namespace cairn
