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
  const char* const rank = std::getenv("LOCAL_RANK");
  const char* const size = std::getenv("LOCAL_WORLD_SIZE");
  int32_t own = 0, all = 0;
  const bool given = rank != nullptr && size != nullptr && absl::SimpleAtoi(rank, &own) &&
                     absl::SimpleAtoi(size, &all);
  return given ? ShareOfGpus(gpus, own, all) : ShareOfGpus(gpus, 0, 1);
}

}  // namespace cairn
