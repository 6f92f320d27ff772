// Adds servers to a running cluster and removes them.
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

// Lists the servers. Finding: ps:0 does not answer; the list is then the cluster file's.
absl::StatusOr<Answer> RunServersList(const ServersOptions& options);
// Makes `task` a server of the cluster. Its process must already run, and its index must be the
// next one or that of a server that has left.
absl::StatusOr<Answer> RunServersAdd(const ServersOptions& options);
// Removes `task`, which must hold no rows any more. Its process runs on until it is ended.
absl::StatusOr<Answer> RunServersRemove(const ServersOptions& options);

}  // namespace cairn
