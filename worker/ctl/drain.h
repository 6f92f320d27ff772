// Shuts servers down in order: they write everything, notify their callers, and exit with status 0.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct DrainOptions {
  TargetOptions target;            // without a job
  std::vector<std::string> tasks;  // "ps:1", "1"
  bool all = false;
  double wait_seconds = 120;  // for a server to write everything and to exit
};

// Asks all servers at once and waits until none answers. Finding: a server did not drain; the
// others still did.
absl::StatusOr<Answer> RunDrain(const DrainOptions& options);

}  // namespace cairn
