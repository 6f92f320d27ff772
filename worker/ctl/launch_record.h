// The file in which a launch describes itself for `cairnctl logs` and `cairnctl stop`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn {

// Thread safety: a value.
struct LaunchRecord {
  pid_t pid = 0;
  uint64_t started = 0;  // start of the process, in clock ticks since the machine's boot
  std::string job;       // empty: servers alone
  std::string cluster_file;
  std::string log_directory;
  std::vector<std::string> servers;  // addresses, by index

  // For messages: "launch 4711 (job ads)".
  std::string Name() const;
};

// Writes launch.json in `folder` atomically. Fills pid and started with this process's.
absl::Status WriteLaunchRecord(const std::string& folder, LaunchRecord record);

// Whether the process that wrote the record still runs.
bool IsRunning(const LaunchRecord& record);

// The running launches of this user, by pid: those in directories "cairn-launch.*" of TMPDIR that
// this user owns.
std::vector<LaunchRecord> RunningLaunches();

// The only running launch, or the one with `pid`. kNotFound, kInvalidArgument (AsBadInput): lists
// the running launches.
absl::StatusOr<LaunchRecord> FindLaunch(pid_t pid);

// The path of a task's log: "DIR/worker-0.log" for worker:0.
std::string TaskLogPath(const std::string& directory, const std::string& task);

}  // namespace cairn
