// Closing the steps of synchronous jobs: storing decisions, applying the means of steps, and
// waiting for both. ps_server/SYNC.md has the protocol; JobSteps decides which step closes.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps_server/core/ordered_call.h"
#include "ps_server/core/row_access.h"
#include "ps_server/jobs/job_steps.h"
#include "ps_server/moves/members.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class StepCloser {
 public:
  // The arguments must outlive this object.
  StepCloser(StripeStore& store, const RowAccess& rows, UpdateOrder& order, const Members& members,
             const EngineOptions& options)
      : store_(store), rows_(rows), order_(order), members_(members), options_(options) {}

  // Learns the decisions that a worker brings. The coordinator also stores decisions that its disk
  // has lost. kFailedPrecondition: the job is not synchronous on this server.
  absl::Status LearnDecisions(Job& job, absl::Span<const wire::StepDecision> decisions);

  // Closes every step that can be closed, in this thread, one after the other and without a lock.
  // kResourceExhausted: a step's mean needs more memory; the step stays open, and the next call
  // tries again.
  absl::Status CloseSteps(Job& job);

  // For a worker that has announced request.step (Cohort::Await): waits until the steps below it
  // are decided and closed on this server. The coordinator decides in the meantime. Fills in the
  // open step and the decisions asked for. WAIT_EXPIRED names the missing workers. Otherwise errors
  // as Cohort::Check; FENCED; STOPPING.
  absl::Status AwaitStepBegin(const Admitted& admitted, const wire::PullRequest& request,
                              wire::PullReply& reply);

  // Locks `call`, waits until the caller's earlier contributions are applied (WAIT_EXPIRED), and
  // returns the origin of the update. Errors as OrderedCall.
  absl::StatusOr<Origin> PlaceUpdate(const Admitted& admitted, const wire::Caller& caller,
                                     OrderedCall& call);

 private:
  // The caller holds steps.deciding(). kFailedPrecondition: the job was dropped in the meantime.
  absl::Status Store(const JobSteps& steps, const DecisionRecord& decision)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(steps.deciding());
  absl::Status Decide(JobSteps& steps, int64_t below);
  absl::Status ForgetDecisions(JobSteps& steps, int64_t all_durable_step);
  void ReportLost(const Job& job, const SyncSteps::Closing& closing);
  absl::Status ApplyMean(Job& job, const SyncSteps::Closing& closing);
  absl::Status CloseStep(Job& job, const SyncSteps::Closing& closing);
  absl::Status CheckWait(const JobSteps& steps, const Session& session, int64_t incarnation);
  absl::Status AwaitContributions(const Admitted& admitted, int64_t incarnation);

  StripeStore& store_;
  const RowAccess& rows_;
  UpdateOrder& order_;
  const Members& members_;
  const EngineOptions& options_;
};

}  // namespace cairn
