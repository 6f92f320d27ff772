#include "ps_server/calls/calls.h"

#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/calls/gradient_update.h"
#include "ps_server/core/request_items.h"
#include "ps_server/jobs/step_mean.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// A thread keeps its scratch memory between requests of up to this many ids and items, and releases
// it after a larger one, or one that charged the budget for copies of its gradients. A request of
// more ids charges the budget for its sorting (kPushScratchBytesPerId).
constexpr int64_t kKeptPushIds = 64 << 10;
constexpr size_t kKeptPushItems = 1 << 10;
constexpr int64_t kPushScratchBytesPerId = 40;
// A contribution that waits for its step, besides its gradients: with its position and its places
// in the tables of the step and the worker.
constexpr int64_t kContributionBytes = sizeof(PendingContribution) + kMaxPositionBytes + 256;

absl::Status ApplyNow(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                      const Admitted& admitted, const wire::PushRequest& request,
                      const PulledRows* last_pull, UpdateScratch& scratch, wire::PushReply& reply) {
  OrderedCall call(order, admitted, request.caller, request.sequence);
  ASSIGN_OR_RETURN(const Origin origin, steps.PlaceUpdate(admitted, request.caller, call));
  GradientUpdate update(rows, request.items, /*step=*/0, last_pull, scratch);
  const absl::Status status = update.Apply(*admitted.variables, origin, reply);
  call.Commit(status);
  return status;
}

// Applies a part of a push whose rows have moved to this server since the push was sent.
absl::Status ApplyLate(const RowAccess& rows, UpdateOrder& order, const Admitted& admitted,
                       const wire::PushRequest& request, const PulledRows* last_pull,
                       UpdateScratch& scratch, wire::PushReply& reply) {
  RETURN_IF_ERROR(CheckSequenced(rows.server, admitted, "a late part"));
  OrderedCall call(order, admitted, request.caller, request.sequence);
  RETURN_IF_ERROR(call.Lock());
  const Origin origin = call.PlaceLatePart();
  GradientUpdate update(rows, request.items, /*step=*/0, last_pull, scratch);
  TouchedParts touched;
  RETURN_IF_ERROR(update.Apply(*admitted.variables, origin, reply, &touched));
  // If the shard's update count is lost in a crash, the part in the worker's order raises the count
  // again when it is replayed. Nothing replays the count of a late part.
  touched.counted |= !origin.applied || reply.repeated;
  call.Unlock();
  CAIRN_CRASH_POINT("late part: applied, not durable");
  return rows.flusher.AwaitDurable(touched);
}

PendingContribution ContributionOf(const wire::PushRequest& request) {
  PendingContribution contribution;
  contribution.step = request.step;
  contribution.name.worker = request.caller.worker;
  contribution.name.incarnation = request.caller.incarnation;
  contribution.name.sequence = request.sequence.sequence;
  contribution.name.rows = request.rows;
  contribution.name.position = request.sequence.position;
  return contribution;
}

absl::StatusOr<std::shared_ptr<const void>> ChargeContribution(const RowAccess& rows) {
  RETURN_IF_ERROR(rows.budget.Acquire(
      kContributionBytes, absl::StrCat("the entry of a contribution on ", rows.server)));
  MemoryHold hold(rows.budget, kContributionBytes);
  return std::make_shared<MemoryHold>(std::move(hold));
}

// Checks a contribution and adds it to the job's steps.
absl::Status AddContribution(const RowAccess& rows, WaitBoard& waits, const Admitted& admitted,
                             const wire::PushRequest& request, GradientUpdate& update,
                             wire::PushReply& reply) {
  PendingContribution contribution = ContributionOf(request);
  ASSIGN_OR_RETURN(contribution.charge, ChargeContribution(rows));
  absl::Status status;
  if (const absl::StatusOr<bool> counts = update.Check(*admitted.variables, reply); !counts.ok()) {
    status = counts.status();
  } else if (*counts) {
    auto parts = KeepParts(rows.budget, rows.server, request.items, update.values());
    status = parts.status();
    if (parts.ok()) contribution.parts = *std::move(parts);
  }
  if (IsRetryable(status)) return status;
  // A rejected contribution is added too, without values, so that later sequences can follow.
  const auto add = [&] {
    const TracedLock deciding = admitted.job->steps().LockDecisions(waits);
    return admitted.job->steps().Add(std::move(contribution), request.replaces);
  };
  switch (add()) {
    case SyncSteps::Added::kLate:
      rows.counters.Add("contributions_dropped");
      reply.dropped = true;
      admitted.session->Closed(request.sequence.sequence, request.sequence.position);
      return status;
    case SyncSteps::Added::kDropped: reply.dropped = true; break;
    case SyncSteps::Added::kRepeated:
      rows.counters.Add("pushes_repeated");
      reply.repeated = true;
      break;
    case SyncSteps::Added::kPending: break;
  }
  CAIRN_CRASH_POINT("contribution: kept, not in order yet");
  admitted.session->AddWaiting(request.sequence.sequence);
  return status;
}

// Keeps a contribution until its step closes.
absl::Status KeepForStep(const RowAccess& rows, UpdateOrder& order, const Admitted& admitted,
                         const wire::PushRequest& request, const PulledRows* last_pull,
                         UpdateScratch& scratch, wire::PushReply& reply) {
  RETURN_IF_ERROR(rows.flusher.failure());
  RETURN_IF_ERROR(CheckSequenced(rows.server, admitted, "a push for a step"));
  if (!admitted.job->steps().active() ||
      admitted.job->cohort().settings().mode != ConsistencyMode::kSync) {
    return FailedPrecondition(rows.server, ": a push of worker ", request.caller.worker,
                              " for a step of job ", request.caller.job,
                              ", whose consistency is not sync here: say hello with it first");
  }
  OrderedCall call(order, admitted, request.caller, request.sequence);
  RETURN_IF_ERROR(call.Lock());
  ASSIGN_OR_RETURN(const bool applied, call.PlaceContribution());
  GradientUpdate update(rows, request.items, request.step, last_pull, scratch);
  if (!applied) return AddContribution(rows, order.waits, admitted, request, update, reply);
  RETURN_IF_ERROR(update.Check(*admitted.variables, reply).status());
  rows.counters.Add("pushes_repeated");
  reply.repeated = true;
  return absl::OkStatus();
}

absl::Status ApplyOrKeep(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                         const Admitted& admitted, const wire::PushRequest& request,
                         wire::PushReply& reply) {
  const int64_t ids = IdCount(request.items);
  MemoryHold hold;
  if (ids > kKeptPushIds) {
    RETURN_IF_ERROR(rows.budget.Acquire(ids * kPushScratchBytesPerId, "sorting the ids of a push"));
    hold = MemoryHold(rows.budget, ids * kPushScratchBytesPerId);
  }
  thread_local std::unique_ptr<UpdateScratch> scratch;
  if (scratch == nullptr) scratch = std::make_unique<UpdateScratch>();
  const absl::Cleanup release = [&] {  // also after an exception
    const bool large = ids > kKeptPushIds || request.items.size() > kKeptPushItems;
    if (large || scratch->is_charged()) scratch.reset();
  };
  const bool any_keys = admitted.session != nullptr && ids > 0;
  const LastPullUse pulled(any_keys ? &admitted.session->last_pull() : nullptr);
  if (request.step > 0) {
    return KeepForStep(rows, order, admitted, request, pulled.get(), *scratch, reply);
  }
  if (request.late) {
    return ApplyLate(rows, order, admitted, request, pulled.get(), *scratch, reply);
  }
  return ApplyNow(rows, order, steps, admitted, request, pulled.get(), *scratch, reply);
}

}  // namespace

absl::Status Push(const RowAccess& rows, UpdateOrder& order, StepCloser& steps,
                  const Admitted& admitted, const wire::PushRequest& request,
                  wire::PushReply& reply) {
  if (!request.decisions.empty() && admitted.job != nullptr) {
    RETURN_IF_ERROR(steps.LearnDecisions(*admitted.job, request.decisions));
  }
  absl::Status status = ApplyOrKeep(rows, order, steps, admitted, request, reply);
  rows.counters.Add(status.ok() ? Counter("pushes") : Counter("pushes_refused"));
  // The decisions or the push may have been the last that a step was missing.
  const bool may_close = request.step > 0 || !request.decisions.empty();
  if (status.ok() && may_close && admitted.job != nullptr) {
    const absl::Status closed = CatchBadAlloc([&] { return steps.CloseSteps(*admitted.job); });
    // A contribution that was kept counts. If a step cannot close yet for lack of memory, later
    // pushes and the pulls that wait for it try again.
    if (!IsRetryable(closed)) status = closed;
  }
  return status;
}

}  // namespace cairn
