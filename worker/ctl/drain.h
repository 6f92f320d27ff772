// Takes servers away in order: everything written, callers told, exit status 0.
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
  double wait_seconds = 120;  // for a server to write everything and be gone
};

// Asks all of them at once and waits until nobody answers there any more. Finding: one did not
// drain; the others have all the same.
absl::StatusOr<Answer> RunDrain(const DrainOptions& options);

}  // namespace cairn
