#include "ps_server/calls/step_closing.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "ps_server/calls/gradient_update.h"
#include "ps_server/jobs/step_mean.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

// The longest wait of an update for its worker's contributions. The update holds the worker's order
// lock meanwhile, and so delays the calls that renew the worker's lease.
constexpr absl::Duration kMaxOrderWait = absl::Seconds(5);

DecisionRecord ToRecord(const wire::StepDecision& decision, const std::string& job) {
  DecisionRecord record;
  record.job = job;
  record.step = decision.step;
  for (const wire::Contribution& named : decision.contributions) {
    NamedContribution& name = record.contributions.emplace_back();
    name.worker = named.worker;
    name.incarnation = named.incarnation;
    name.sequence = named.sequence;
    name.rows = named.rows;
  }
  return record;
}

// Whether this server hosts any rows of the job.
bool AnyRows(const Job& job) {
  const auto variables = job.variables();
  return std::ranges::any_of(
      *variables, [](const auto& variable) { return !variable.second->shards().empty(); });
}

SyncSteps::Missing WhyMissing(const Job& job, bool any_rows, const NamedContribution& name) {
  const std::shared_ptr<Session> session = job.FindSession(name.worker);
  // The worker pushed before it knew of this server, or this server hosts nothing of the job.
  if (session == nullptr || session->only_fenced() || !any_rows) {
    return SyncSteps::Missing::kNoPart;
  }
  // A newer start of the worker computes again whatever is not applied on all servers.
  if (session->left()) return SyncSteps::Missing::kLost;
  return session->applied() < name.sequence ? SyncSteps::Missing::kAwaited
                                            : SyncSteps::Missing::kNoPart;
}

}  // namespace

// Stores a decision as durably as the server promises, before any worker learns of it.
absl::Status StepCloser::Store(const JobSteps& steps, const DecisionRecord& decision) {
  if (steps.ended()) {
    return FailedPrecondition("job ", steps.job(),
                              " was dropped or restored meanwhile: start this task again");
  }
  if (options_.durability == Durability::kOff) return absl::OkStatus();
  const WaitBoard::Waiting waiting(&order_.waits, "epoch",
                                   absl::StrCat("the decision of step ", decision.step,
                                                " to be written to ", options_.directory));
  // A decision that leaves workers out is synced in any case: if the machine loses it and all
  // workers that learned of it are gone, the server could make a different one.
  const bool sync = options_.durability == Durability::kLogSync ||
                    steps.cohort().settings().replicas_to_aggregate > 0;
  const absl::Status stored = store_.PutDecision(decision, sync);
  return stored.ok() ? stored : rows_.flusher.Refuse(stored);
}

// Makes every decision for steps below `below` that can be made.
absl::Status StepCloser::Decide(JobSteps& steps, int64_t below) {
  const std::vector<QuorumMember> quorum = steps.cohort().Quorum();
  const TracedLock deciding = steps.LockDecisions(order_.waits);
  while (std::optional<DecisionRecord> decision = steps.NextDecision(quorum, below)) {
    CAIRN_CRASH_POINT("decision: made, not stored");
    RETURN_IF_ERROR(Store(steps, *decision));
    CAIRN_CRASH_POINT("decision: stored");
    steps.Learn(*std::move(decision));
  }
  return absl::OkStatus();
}

// Deletes stored decisions that no worker needs any more.
absl::Status StepCloser::ForgetDecisions(JobSteps& steps, int64_t all_durable_step) {
  const std::optional<int64_t> up_to = steps.Forget(all_durable_step);
  if (!up_to) return absl::OkStatus();
  const TracedLock deciding = steps.LockDecisions(order_.waits);
  if (steps.ended()) return absl::OkStatus();  // a new job of this name may have such decisions
  const absl::Status dropped = store_.DropDecisions(steps.job(), *up_to);
  return dropped.ok() ? dropped : rows_.flusher.Refuse(dropped);
}

void StepCloser::ReportLost(const Job& job, const SyncSteps::Closing& closing) {
  for (const NamedContribution* name : closing.lost) {
    rows_.counters.Add("contributions_lost");
    LOG(WARNING) << rows_.server << ": step " << closing.decision->step << " of job " << job.name()
                 << " closes without push " << name->sequence << " of worker " << name->worker
                 << ", which counts for it: this server was restarted without it, and its worker "
                    "is gone";
  }
}

// Applies the mean of the step's contributions.
absl::Status StepCloser::ApplyMean(Job& job, const SyncSteps::Closing& closing) {
  if (closing.present.empty()) return absl::OkStatus();
  const int64_t step = closing.decision->step;
  // The current variables: other workers may have created some since this call was admitted.
  const std::shared_ptr<const VariableMap> variables = job.variables();
  ASSIGN_OR_RETURN(const StepMean mean,
                   MeanOf(rows_.budget, *variables, closing.present, closing.rows_elsewhere,
                          job.cohort().settings().sync_mean));
  const absl::Status applied =
      ApplyStepMean(rows_, *variables, mean.items, {.worker = kStepWorker, .sequence = step});
  if (IsRetryable(applied)) return applied;
  if (!applied.ok()) {
    LOG(ERROR) << rows_.server << ": step " << step << " of job " << job.name()
               << " closes without an update: " << applied.message();
  }
  return absl::OkStatus();
}

absl::Status StepCloser::CloseStep(Job& job, const SyncSteps::Closing& closing) {
  const int64_t step = closing.decision->step;
  CAIRN_CRASH_POINT("step: before it closes");
  ReportLost(job, closing);
  RETURN_IF_ERROR(ApplyMean(job, closing));
  const int64_t dropped =
      job.steps().Close(step, [&](int32_t worker) { return job.FindSession(worker); });
  rows_.counters.Add("contributions_dropped", dropped);
  rows_.counters.Add("steps");
  CAIRN_CRASH_POINT("step: closed");
  return rows_.flusher.AwaitPromised();
}

// The errors that end the wait of a call that speaks for `session`.
absl::Status StepCloser::CheckWait(const JobSteps& steps, const Session& session,
                                   int64_t incarnation) {
  RETURN_IF_ERROR(steps.stopped());
  return CheckIncarnation(order_, session, incarnation);
}

// Waits until the contributions of the caller's earlier sequences are applied or dropped.
absl::Status StepCloser::AwaitContributions(const Admitted& admitted, int64_t incarnation) {
  Session& session = *admitted.session;
  JobSteps& steps = admitted.job->steps();
  const Deadline deadline = Deadline::In(kMaxOrderWait);
  const JobSteps::Waiter waiter{.worker = session.worker(), .since = MonotonicNow()};
  const WaitBoard::Waiting waiting(&order_.waits, "step",
                                   "the steps of its contributions to close");
  for (;;) {
    const int64_t seen = steps.generation();
    RETURN_IF_ERROR(CloseSteps(*admitted.job));
    if (!session.any_waiting()) return absl::OkStatus();
    RETURN_IF_ERROR(CheckWait(steps, session, incarnation));
    if (deadline.Expired()) {
      return WithReason(absl::DeadlineExceededError(steps.WaitText(waiter)),
                        wire::ErrorReason::WAIT_EXPIRED);
    }
    steps.WaitForWake(seen, deadline);
  }
}

absl::Status StepCloser::LearnDecisions(Job& job, absl::Span<const wire::StepDecision> decisions) {
  if (decisions.empty()) return absl::OkStatus();
  JobSteps& steps = job.steps();
  if (!steps.active()) {
    return FailedPrecondition(
        rows_.server, ": decisions of steps of job ", job.name(),
        ", which is not synchronous here: say hello with that consistency first");
  }
  const TracedLock deciding = steps.LockDecisions(order_.waits);
  for (const wire::StepDecision& decision : decisions) {
    if (decision.step != steps.decided() + 1) continue;
    DecisionRecord record = ToRecord(decision, job.name());
    if (steps.role().coordinator) {
      // The coordinator's disk came back older than its replies. A decision that a worker learned
      // holds.
      LOG(WARNING) << rows_.server << ": takes the decision of step " << decision.step << " of job "
                   << job.name() << " from a worker, because its own disk has lost it";
      RETURN_IF_ERROR(Store(steps, record));
    }
    steps.Learn(std::move(record));
  }
  return absl::OkStatus();
}

absl::Status StepCloser::CloseSteps(Job& job) {
  JobSteps& steps = job.steps();
  for (;;) {
    const std::optional<SyncSteps::Closing> next =
        steps.BeginClosing([&, any_rows = AnyRows(job)](const NamedContribution& name) {
          return WhyMissing(job, any_rows, name);
        });
    if (!next) return absl::OkStatus();
    const absl::Cleanup closed = [&] { steps.EndClosing(); };
    RETURN_IF_ERROR(CloseStep(job, *next));
  }
}

absl::Status StepCloser::AwaitStepBegin(const Admitted& admitted, const wire::PullRequest& request,
                                        wire::PullReply& reply) {
  Session& session = *admitted.session;
  JobSteps& steps = admitted.job->steps();
  const bool coordinator = steps.role().coordinator;
  const Deadline deadline = Deadline::In(absl::Seconds(request.wait_seconds));
  if (coordinator && request.members_version == members_.version()) {
    RETURN_IF_ERROR(ForgetDecisions(steps, request.all_durable_step));
  }
  const JobSteps::Waiter waiter{
      .worker = session.worker(), .step = request.step, .since = MonotonicNow()};
  std::optional<JobSteps::Waiters::iterator> listed;
  const absl::Cleanup done = [&] {
    if (listed) steps.RemoveWaiter(*listed);
  };
  for (;;) {
    const int64_t seen = steps.generation();
    if (coordinator) RETURN_IF_ERROR(Decide(steps, request.step));
    RETURN_IF_ERROR(CloseSteps(*admitted.job));
    ASSIGN_OR_RETURN(const bool begun, steps.TryBegin(session.worker(), request, reply));
    if (begun) return absl::OkStatus();
    if (!listed) listed = steps.AddWaiter(waiter);
    RETURN_IF_ERROR(CheckWait(steps, session, request.caller.incarnation));
    if (session.stopped()) RETURN_IF_ERROR(admitted.job->cohort().Check(session));
    if (deadline.Expired()) {
      return WithReason(absl::DeadlineExceededError(steps.WaitText(waiter)),
                        wire::ErrorReason::WAIT_EXPIRED);
    }
    steps.WaitForWake(seen, deadline);
  }
}

absl::StatusOr<Origin> StepCloser::PlaceUpdate(const Admitted& admitted, const wire::Caller& caller,
                                               OrderedCall& call) {
  RETURN_IF_ERROR(call.Lock());
  if (call.follows_contributions()) {
    RETURN_IF_ERROR(AwaitContributions(admitted, caller.incarnation));
  }
  return call.PlaceUpdate();
}

}  // namespace cairn
