// The consistency of pulls, and the RPC why.
#pragma once

#include "absl/status/status.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/calls/step_closing.h"
#include "ps_server/core/admitted.h"
#include "ps_server/jobs/registry.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Called before a pull is answered: announces the step that the pull begins, and waits for other
// workers as the job's consistency asks, for at most request.wait_seconds. Fills in the reply's
// fields about steps. Errors as Cohort::Await.
absl::Status AwaitStep(absl::string_view server, StepCloser& closer, const Admitted& admitted,
                       const wire::PullRequest& request, wire::PullReply& reply);

// Fills in the waits of calls and the state of workers. Does not wait.
void FillWhy(const Registry& registry, const WaitBoard& waits, const wire::Caller& caller,
             wire::WhyReply& reply);

}  // namespace cairn
