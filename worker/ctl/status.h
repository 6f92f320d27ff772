// Shows a job at a glance: servers, workers, variables, waits, the last checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/server_view.h"
#include "worker/ctl/target.h"

namespace cairn {

struct StatusOptions {
  TargetOptions target;
  double watch_seconds = 0;  // 0: print once
};

// The servers' counters at one time, for rates. Thread safety: a value.
struct StatusSample {
  absl::Duration at;                      // on the monotonic clock
  std::map<std::string, int64_t> pushes;  // by the server's name
  std::map<int32_t, int64_t> steps;       // by worker
};

// The answer from `servers`, asked at `now` on the monotonic clock; with rates since `before`
// unless it is null. Sets `sample` to the state that the next call compares with.
Answer StatusAnswer(const Target& target, const std::vector<ServerView>& servers,
                    absl::Duration now, const StatusSample* before, StatusSample* sample);

// Prints once, or every watch_seconds until the process is interrupted or stdout is closed. While
// it watches, each answer is written at once, with `json` on one line.
absl::StatusOr<Answer> RunStatus(const StatusOptions& options, bool json);

}  // namespace cairn
