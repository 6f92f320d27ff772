// What a launch writes about itself, so that `cairnctl logs` and `cairnctl stop` find it.
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
  uint64_t started = 0;  // of the process, in clock ticks since the machine's start
  std::string job;       // empty: servers alone
  std::string cluster_file;
  std::string log_directory;
  std::vector<std::string> servers;  // addresses, by index

  // For messages: "launch 4711 (job ads)".
  std::string Name() const;
};

// launch.json in `folder`, whole or not at all. Fills pid and started with this process's.
absl::Status WriteLaunchRecord(const std::string& folder, LaunchRecord record);

// Whether the process that wrote it still runs.
bool IsRunning(const LaunchRecord& record);

// The launches of this user that run now, by pid: those in folders "cairn-launch.*" of TMPDIR that
// this user owns.
std::vector<LaunchRecord> RunningLaunches();

// The only one of them; with `pid` that one. kNotFound, kInvalidArgument (AsBadInput): lists those
// that run.
absl::StatusOr<LaunchRecord> FindLaunch(pid_t pid);

// The folder's log of a task: "DIR/worker-0.log" of worker:0.
std::string TaskLogPath(const std::string& directory, const std::string& task);

}  // namespace cairn
