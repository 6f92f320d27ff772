// The order of a worker's pushes and assigns (DESIGN §4).
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "ps_server/server_core.h"
#include "ps_server/stripe.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Whether an update that was refused with `status` is to be sent again: memory was short
// (kResourceExhausted), or rows have moved (BUSY, MOVED). It may be one that this server had
// acknowledged before it was restarted, and as void it would be lost.
bool MayPass(const absl::Status& status);

// Runs `apply` in the order of the caller's sequences: after `sequence.after`, never beside another
// of the same worker. Records the sequence as applied when `apply` returns, also where it refuses:
// then it is void, so that the order goes on; but not where that MayPass. An unsequenced caller's
// `apply` runs at once.
//
// Where earlier ones of the worker wait for their step it waits too: WAIT_EXPIRED.
// FENCED, REBOOTED, REPLAY, STOPPING and WAIT_EXPIRED are returned without running it, and nothing
// is recorded.
absl::Status ApplyInOrder(ServerCore& core, const Admitted& admitted, const wire::Caller& caller,
                          const wire::Sequence& sequence,
                          absl::FunctionRef<absl::Status(const Origin&)> apply);

// What an update has touched, of this server.
struct TouchedParts {
  std::vector<Stripe*> stripes;
  bool counted = false;  // perhaps: as an update of a shard that no replay would count again
};

// Runs `apply` for a part of a sequence that comes late, of rows that have moved here since it was
// sent: whatever the caller's order here, whose record it leaves alone. What it applies, and notes
// in `touched`, is durable when this returns OK. kInvalidArgument: the caller is not sequenced.
absl::Status ApplyLate(ServerCore& core, const Admitted& admitted, const wire::Caller& caller,
                       const wire::Sequence& sequence,
                       absl::FunctionRef<absl::Status(const Origin&)> apply,
                       const TouchedParts& touched);

// The same for a push that is a contribution to a step. `keep(false)` keeps it, and records that it
// waits or is applied; `keep(true)` answers one that is applied. kFailedPrecondition: the job is
// not synchronous. kInvalidArgument: the caller is not sequenced.
absl::Status KeepInOrder(ServerCore& core, const Admitted& admitted, const wire::Caller& caller,
                         const wire::Sequence& sequence,
                         absl::FunctionRef<absl::Status(bool applied)> keep);

// Waits until what was applied so far is as safe as the server's durability promises before an
// acknowledgement. STOPPING where the disk failed.
absl::Status AwaitPromised(ServerCore& core);

// Waits until what has touched these is durable, whatever the server promises; but for durability
// off. Soon, though an epoch may be running: the stripes are written by themselves. Only a count of
// updates waits for an epoch.
absl::Status AwaitDurable(ServerCore& core, const TouchedParts& touched);

// Takes note of caller.through, unless a push of the worker is running (its next call repeats it).
void CarryThrough(const Admitted& admitted, const wire::Caller& caller);

}  // namespace cairn
