// Ends a cluster in order: first workers, then servers.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct StopOptions {
  TargetOptions target;       // without a job; no servers named: the launch that runs here
  int32_t launch = 0;         // its pid; 0: the only one
  double wait_seconds = 120;  // until everything has ended
};

// A launch of this machine gets SIGTERM, as from Ctrl-C: its workers make their pushes durable and
// end, then its servers write everything and end. Servers that are named and that no launch of this
// user here has started are drained, all of them; their workers are not known here, and end with
// an error when strategy.ps_wait_seconds are over.
// kDeadlineExceeded: something still runs.
absl::StatusOr<Answer> RunStop(const StopOptions& options);

}  // namespace cairn
