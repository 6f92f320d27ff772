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

}  // namespace cairn
