// A group whose ranks are processes, connected over TCP by Gloo.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collective/collective_group.h"

namespace cairn {

struct GlooOptions {
  int rank = 0;
  // "host:port" of every rank, the same list on each: 1 to 256. The host is the interface that the
  // rank's connections use; the port appears in errors, and rank 0's is where all ranks meet.
  std::vector<std::string> addresses = {};
  // Groups that meet at one address have different names.
  std::string name = "workers";
  // Where a ControlServer runs already, at which the ranks meet instead; empty: rank 0 listens at
  // addresses[0] for as long as its group lives.
  std::string meeting_address = {};
};

// Connects to every other rank; every rank calls it. Nothing on these connections is encrypted or
// authenticated: they belong into a network whose hosts trust each other. SIGPIPE is ignored from
// now on, unless the program has a handler for it: a connection that ended is an error of its call.
//
// Small inputs (4 KiB) are sent to all ranks and added up in rank order by each; larger ones go
// round a ring, and element i is added up in an order that depends on i and the group's size alone.
//
// After any error but kInvalidArgument the group is broken: every rank's running and later calls
// fail, within the deadline of the first, with what that rank found. To go on, destroy the group on
// every rank and Connect again, without the ranks that are gone.
// kInvalidArgument: addresses or rank are wrong, or differ between ranks. kDeadlineExceeded: names
// the ranks that did not come. kUnavailable: an address cannot be used here, or a rank died after
// all had come, which may take until `deadline` once more to be seen.
absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectGloo(const GlooOptions& options,
                                                             Deadline deadline);

}  // namespace cairn
