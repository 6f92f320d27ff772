// Shows the logs of a launch's tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"

namespace cairn {

struct LogsOptions {
  std::string directory;           // empty: the logs of a running launch
  int32_t launch = 0;              // its pid; 0: the only running launch
  std::vector<std::string> tasks;  // "worker:0"; empty: all
  int64_t lines = 20;              // how many last lines of each task
  bool follow = false;
};

// Shows the last lines of each task, prefixed with its name. With `follow` and without `json` it
// continues to print new lines until the launch ends or, if a directory was given, until the
// process is interrupted.
absl::StatusOr<Answer> RunLogs(const LogsOptions& options, bool json);

}  // namespace cairn
