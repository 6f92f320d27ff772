// Servers that join and leave a running cluster.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct ServersOptions {
  TargetOptions target;  // without a job
  std::string task;      // "ps:2"
  std::string address;   // add: "host:port"; empty: the cluster file's
};

// Which servers there are. Finding: ps:0 does not answer; shows the cluster file's then.
absl::StatusOr<Answer> RunServersList(const ServersOptions& options);
// `task` runs already, is the next of the cluster or one that has left, and becomes a server.
absl::StatusOr<Answer> RunServersAdd(const ServersOptions& options);
// `task`, which has no rows any more, is none from now on; it runs on until it is ended.
absl::StatusOr<Answer> RunServersRemove(const ServersOptions& options);

}  // namespace cairn
