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

// The server refused the exchange's last attempt because rows have moved.
bool Moved(const Exchange& exchange);

// Thread safety: every method may be called from several threads at once.
class MapFollower {
 public:
  // All outlive this.
  MapFollower(const ClientIdentity& identity, const ServerTable& sessions,
              ClientVariableMap& variables, Membership& membership, ClientGate& gate)
      : identity_(identity),
        sessions_(sessions),
        variables_(variables),
        membership_(membership),
        gate_(gate) {}

  // Goes by the maps in `moved` from now on. Where a server that a map names cannot be greeted the
  // map is not learned: says so in the log and to the gate, and pauses, longer each time, since
  // `moved` will be answered again.
  void Learn(const absl::Status& moved, Deadline deadline);
  // False: none of them met rows that have moved.
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
