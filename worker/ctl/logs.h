// The logs of a launch's tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"

namespace cairn {

struct LogsOptions {
  std::string directory;           // empty: that of a launch that runs
  int32_t launch = 0;              // its pid; 0: the only one
  std::vector<std::string> tasks;  // "worker:0"; empty: all
  int64_t lines = 20;              // the last ones of each task
  bool follow = false;
};

// The last lines of each task with its name in front. With `follow` and without `json` what the
// tasks write from then on is printed too, until the launch ends or, of a directory, the process is
// interrupted.
absl::StatusOr<Answer> RunLogs(const LogsOptions& options, bool json);

}  // namespace cairn
