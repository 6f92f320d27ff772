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
  // "host:port" of every rank, the same list on each: 1 to 256. The host selects the interface of
  // the rank's connections; the port appears in errors, and rank 0's port is where all ranks
  // rendezvous.
  std::vector<std::string> addresses = {};
  // Groups that rendezvous at one address must have different names.
  std::string name = "workers";
  // Address of a running ControlServer to use for the rendezvous instead; empty: rank 0 listens at
  // addresses[0] for the lifetime of its group.
  std::string rendezvous_address = {};
};

// Connects to every other rank; every rank must call it. These connections are neither encrypted
// nor authenticated: use them only in a network whose hosts trust each other. From this call on
// SIGPIPE is ignored, unless the program has a handler for it, so that a closed connection is an
// error of its call.
//
// Inputs up to 4 KiB are sent to all ranks, and each rank adds them up in rank order. Larger inputs
// go round a ring, and the order of additions for element i depends only on i and the group size.
//
// After any error except kInvalidArgument the group is broken: every rank's running and later calls
// fail, within the deadline of the first, with the fault that the rank found. To continue, destroy
// the group on every rank and Connect again, without the ranks that are gone.
// kInvalidArgument: addresses or rank are wrong, or differ between ranks. kDeadlineExceeded: the
// message names the missing ranks. kUnavailable: an address cannot be used here, or a rank died
// after all had joined, whose detection may take `deadline` a second time.
absl::StatusOr<std::unique_ptr<CollectiveGroup>> ConnectGloo(const GlooOptions& options,
                                                             Deadline deadline);

}  // namespace cairn
