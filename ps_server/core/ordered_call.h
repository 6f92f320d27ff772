// The order of a worker's pushes and assigns on one server. worker/client/EXACTLY_ONCE.md has the
// protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ps_server/base/counters.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/core/admitted.h"
#include "ps_server/persistence/flusher.h"
#include "ps_server/rows/stripe.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Whether a client resends an update that was rejected with `status`: memory was short
// (kResourceExhausted), or rows have moved (BUSY, MOVED). The server may have acknowledged the same
// update before a restart, so it must not record the sequence as void.
bool IsRetryable(const absl::Status& status);

// What the order of updates uses of its server.
struct UpdateOrder {
  const absl::string_view server;  // "ps:0", for messages
  Flusher& flusher;                // whose failure rejects updates
  WaitBoard& waits;
  Counters& counters;
  // Held shared over updates of callers that are not sequenced, which have no order to hold.
  absl::Mutex unsequenced{};
};

// kInvalidArgument: the caller has no session; `what` ("a push for a step") needs one.
absl::Status CheckSequenced(absl::string_view server, const Admitted& admitted,
                            absl::string_view what);
// FENCED or REBOOTED if `incarnation` is not the current one of `session`.
absl::Status CheckIncarnation(UpdateOrder& order, const Session& session, int64_t incarnation);

// One push or assign in the order of its worker's sequences. No two updates of a worker run at the
// same time: this object holds the worker's order lock from Lock until it is destroyed.
//
//   OrderedCall call(order, admitted, request.caller, request.sequence);
//   RETURN_IF_ERROR(call.Lock());
//   ASSIGN_OR_RETURN(const Origin origin, call.PlaceUpdate());
//   const absl::Status status = ...;  // applies the update as `origin`
//   call.Commit(status);
//
// An unsequenced caller has no order: its updates run beside each other.
// Thread safety: none; one thread uses it.
class OrderedCall {
 public:
  // The arguments outlive this object.
  OrderedCall(UpdateOrder& order, const Admitted& admitted, const wire::Caller& caller,
              const wire::Sequence& sequence);
  ~OrderedCall() { Unlock(); }
  OrderedCall(const OrderedCall&) = delete;
  OrderedCall& operator=(const OrderedCall&) = delete;

  // Waits for the worker's earlier calls. STOPPING, FENCED or REBOOTED; kInvalidArgument: the
  // sequence is malformed.
  absl::Status Lock();
  void Unlock();

  // Whether contributions of the worker still wait for their step. PlaceUpdate must not be called
  // before they are applied, because its sequence would cover theirs.
  bool follows_contributions() const;

  // The origin of an update that is applied now. REPLAY: an earlier sequence of the worker is
  // missing on this server.
  absl::StatusOr<Origin> PlaceUpdate();
  // Whether this contribution to a step is already applied. REPLAY as PlaceUpdate.
  absl::StatusOr<bool> PlaceContribution();
  // The origin of a late part: rows that moved to this server after the update was sent. Late parts
  // are outside the worker's order, and Commit must not be called for them.
  Origin PlaceLatePart() const;

  // Records the sequence as applied, also after a rejected update (it is then void), so that later
  // sequences can follow. Records nothing if `outcome` is retryable.
  void Commit(const absl::Status& outcome);

 private:
  Origin OriginAt(int64_t applied) const;
  absl::Status ReplayError(int64_t applied) const;

  UpdateOrder& shared_;
  Session* const session_;  // nullptr: unsequenced
  const wire::Caller& caller_;
  const wire::Sequence& sequence_;
  std::optional<TracedLock> order_;
  std::optional<TracedReaderLock> unsequenced_;
};

// Records that sequences up to caller.through which have not reached this server never will. Does
// nothing while an update of the worker runs, because the worker's next call repeats the value.
void SkipVoidSequences(const Admitted& admitted, const wire::Caller& caller);

}  // namespace cairn
