// Ends a cluster in order: first workers, then servers.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct StopOptions {
  TargetOptions target;       // without a job; no servers: the launch that runs on this machine
  int32_t launch = 0;         // its pid; 0: the only running launch
  double wait_seconds = 120;  // for everything to end
};

// Sends SIGTERM to a launch of this machine, with the effect of Ctrl-C: its workers make their
// pushes durable and end, then its servers write everything and end. Named servers that no launch
// of this user on this machine started are all drained. Their workers are not known here; they end
// with an error after strategy.ps_wait_seconds. kDeadlineExceeded: a process still runs.
absl::StatusOr<Answer> RunStop(const StopOptions& options);

}  // namespace cairn
