// Closing the steps of synchronous jobs: storing decisions, applying the means of steps, and
// waiting for both. ps_server/SYNC.md has the protocol; JobSteps decides which step closes.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps_server/core/ordered_call.h"
#include "ps_server/core/server_core.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Learns the decisions that a worker brings. The coordinator also stores decisions that its disk
// has lost. kFailedPrecondition: the job is not synchronous on this server.
absl::Status LearnDecisions(ServerCore& core, Job& job,
                            absl::Span<const wire::StepDecision> decisions);

// Closes every step that can be closed, in this thread, one after the other and without a lock.
// kResourceExhausted: a step's mean needs more memory; the step stays open, and the next call tries
// again.
absl::Status CloseSteps(ServerCore& core, Job& job);

// For a worker that has announced request.step (Cohort::Await): waits until the steps below it are
// decided and closed on this server. The coordinator decides meanwhile. Fills in the open step and
// the decisions asked for. WAIT_EXPIRED names the missing workers. Otherwise errors as
// Cohort::Check; FENCED; STOPPING.
absl::Status AwaitStepBegin(ServerCore& core, const Admitted& admitted,
                            const wire::PullRequest& request, wire::PullReply& reply);

// Locks `order`, waits until the caller's earlier contributions are applied (WAIT_EXPIRED), and
// returns the origin of the update. Errors as OrderedCall.
absl::StatusOr<Origin> PlaceUpdate(ServerCore& core, const Admitted& admitted,
                                   const wire::Caller& caller, OrderedCall& order);

}  // namespace cairn
