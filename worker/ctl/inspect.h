// Lists the variables of a job: on the servers, or in files that no server uses.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/server_view.h"
#include "worker/ctl/target.h"

namespace cairn {

struct InspectOptions {
  TargetOptions target;
  std::string data_directory;          // if not empty: read this directory instead of asking
                                       // servers
  std::vector<std::string> variables;  // patterns with '*'; empty: all
};

absl::StatusOr<Answer> RunInspect(const InspectOptions& options);

// If exactly one variable is named, the text lists its shards too.
Answer InspectAnswer(const Target& target, const std::vector<ServerView>& servers,
                     const std::vector<std::string>& patterns);

}  // namespace cairn
