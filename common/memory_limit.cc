#include "common/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// What can be read of a file.
std::string Contents(const std::filesystem::path& path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Names(absl::string_view controllers, absl::string_view controller) {
  const std::vector<absl::string_view> names = absl::StrSplit(controllers, ',');
  return std::ranges::find(names, controller) != names.end();
}

// The limit in `file` of the group `root`/`group` and of the groups that contain it. A container
// may see its own group as `root`, and none of the directories below.
int64_t LimitOnTheWayUp(const std::filesystem::path& root, absl::string_view group,
                        const char* file) {
  int64_t limit = kNoLimit;
  while (true) {
    int64_t bytes = 0;  // "max": no number
    if (absl::SimpleAtoi(Contents(root / std::string(absl::StripPrefix(group, "/")) / file),
                         &bytes)) {
      limit = std::min(limit, bytes);
    }
    if (group.empty()) return limit;
    const size_t parent = group.rfind('/');
    group = group.substr(0, parent == absl::string_view::npos ? 0 : parent);
  }
}

}  // namespace

int64_t ControlGroupLimitBytes(const std::string& membership, const std::string& root) {
  int64_t limit = kNoLimit;
  for (const absl::string_view line : absl::StrSplit(membership, '\n')) {
    // NUMBER:CONTROLLERS:GROUP; version 2 has number 0 and names no controllers.
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || absl::StrContains(fields[2], "..")) continue;
    if (fields[1].empty()) {
      limit = std::min(limit, LimitOnTheWayUp(root, fields[2], "memory.max"));
    } else if (Names(fields[1], "memory")) {
      limit = std::min(limit, LimitOnTheWayUp(std::filesystem::path(root) / "memory", fields[2],
                                              "memory.limit_in_bytes"));
    }
  }
  return limit;
}

int64_t MemoryLimitBytes() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return std::min(machine, ControlGroupLimitBytes(Contents("/proc/self/cgroup"), "/sys/fs/cgroup"));
}

}  // namespace cairn
