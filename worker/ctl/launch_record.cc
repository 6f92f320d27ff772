#include "worker/ctl/launch_record.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/errors.h"
#include "common/exit_status.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Field 22 of /proc/PID/stat, the process's start time; 0: no such process. The system reuses pids,
// so a pid alone does not identify a process.
uint64_t StartOf(pid_t pid) {
  const std::string text = ReadText(absl::StrCat("/proc/", pid, "/stat"));
  // The name, in parentheses, may contain spaces.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStart = 19;  // the state, field 3, is fields[0]
  uint64_t start = 0;
  const bool ended = fields.empty() || fields[0] == "Z" || fields[0] == "X";
  return !ended && fields.size() > kStart && absl::SimpleAtoi(fields[kStart], &start) ? start : 0;
}

bool IsOwn(const fs::path& folder) {
  struct stat found = {};
  return lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid();
}

std::optional<LaunchRecord> ReadRecord(const fs::path& folder) {
  const Json json = Json::parse(ReadText((folder / "launch.json").string()), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  LaunchRecord record;
  record.pid = json.value("pid", pid_t{0});
  record.started = json.value("started", uint64_t{0});
  record.job = json.value("job", "");
  record.cluster_file = json.value("cluster_file", "");
  record.log_directory = json.value("log_directory", "");
  record.servers = json.value("servers", std::vector<std::string>());
  return record;
}

}  // namespace

std::string LaunchRecord::Name() const {
  return absl::StrCat("launch ", pid, job.empty() ? "" : absl::StrCat(" (job ", job, ")"));
}

absl::Status WriteLaunchRecord(const std::string& folder, LaunchRecord record) {
  record.pid = getpid();
  record.started = StartOf(record.pid);
  const Json json = {{"pid", record.pid},
                     {"started", record.started},
                     {"job", record.job},
                     {"cluster_file", record.cluster_file},
                     {"log_directory", record.log_directory},
                     {"servers", record.servers}};
  const std::string path = absl::StrCat(folder, "/launch.json");
  const std::string written = path + ".new";
  std::ofstream out(written);
  out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  out.close();
  std::error_code error;
  if (out) fs::rename(written, path, error);
  if (!out || error) return Unavailable("cannot write ", path);
  return absl::OkStatus();
}

bool IsRunning(const LaunchRecord& record) {
  return record.pid > 0 && record.started != 0 && StartOf(record.pid) == record.started;
}

std::vector<LaunchRecord> RunningLaunches() {
  std::vector<LaunchRecord> found;
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return found;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const fs::path& folder = at->path();
    if (!absl::StartsWith(folder.filename().string(), "cairn-launch.") || !IsOwn(folder)) continue;
    std::optional<LaunchRecord> record = ReadRecord(folder);
    if (record.has_value() && IsRunning(*record)) found.push_back(*std::move(record));
  }
  std::ranges::sort(found,
                    [](const LaunchRecord& a, const LaunchRecord& b) { return a.pid < b.pid; });
  return found;
}

absl::StatusOr<LaunchRecord> FindLaunch(pid_t pid) {
  const std::vector<LaunchRecord> running = RunningLaunches();
  for (const LaunchRecord& record : running) {
    if (record.pid == pid || (pid == 0 && running.size() == 1)) return record;
  }
  if (running.empty()) {
    return AsBadInput(absl::NotFoundError("no launch of this user runs on this machine"));
  }
  return AsBadInput(InvalidArgument(
      "which launch? give --launch PID; those that run are ",
      absl::StrJoin(running, ", ", [](std::string* text, const LaunchRecord& record) {
        absl::StrAppend(text, record.Name());
      })));
}

std::string TaskLogPath(const std::string& directory, const std::string& task) {
  return absl::StrCat(directory, "/", absl::StrReplaceAll(task, {{":", "-"}}), ".log");
}

}  // namespace cairn
