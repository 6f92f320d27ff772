// Shows which workers wait, for whom, and since when.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/server_view.h"
#include "worker/ctl/target.h"

namespace cairn {

// Lists the calls that wait inside the servers, the longest first; what is wrong with the workers
// that they wait for; and the servers that do not answer, which also make workers wait.
Answer WhyAnswer(const Target& target, const std::vector<ServerView>& servers);

absl::StatusOr<Answer> RunWhy(const TargetOptions& options);

}  // namespace cairn
