// Learns new placement maps from servers that refuse calls because rows have moved
// (ps_server/MOVES.md).
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/client/delivery/client_gate.h"
#include "worker/client/moves/membership.h"

namespace cairn {

// Whether the server refused the exchange's last attempt because rows have moved.
bool Moved(const Exchange& exchange);

// Thread safety: every method may be called from several threads at once.
class MapFollower {
 public:
  // All arguments outlive the follower.
  MapFollower(const ClientIdentity& identity, const ServerTable& sessions,
              ClientVariableMap& variables, Membership& membership, ClientGate& gate)
      : identity_(identity),
        sessions_(sessions),
        variables_(variables),
        membership_(membership),
        gate_(gate) {}

  // Adopts the maps in the error `moved` for later calls. A map is not adopted while the client
  // cannot say hello to a server that the map names. The failure is then logged and reported to the
  // gate, and the call pauses (longer each time), because the servers will return the same error
  // again.
  void Learn(const absl::Status& moved, Deadline deadline);
  // Learns from every exchange that was refused because rows have moved. False: none was.
  bool Learn(absl::Span<Exchange* const> exchanges, Deadline deadline);

 private:
  void PauseAfter(const absl::Status& failure, Deadline deadline);

  const ClientIdentity& identity_;
  const ServerTable& sessions_;
  ClientVariableMap& variables_;
  Membership& membership_;
  ClientGate& gate_;
  absl::Mutex mutex_;
  absl::Duration next_pause_ ABSL_GUARDED_BY(mutex_) = absl::Milliseconds(10);
};

}  // namespace cairn
