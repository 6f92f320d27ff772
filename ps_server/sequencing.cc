#include "ps_server/sequencing.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/status.h"
#include "ps_server/order_rules.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// A wait for others that holds up the worker's own calls, which may themselves be heartbeats away
// from its lease.
constexpr absl::Duration kLongestOrderWait = absl::Seconds(5);

absl::Status CheckSequence(const ServerCore& core, const wire::Sequence& sequence) {
  if (sequence.sequence < 1 || sequence.after < 0 || sequence.after >= sequence.sequence) {
    return absl::InvalidArgumentError(
        absl::StrCat(core.name, ": sequence ", sequence.sequence, " after ", sequence.after,
                     "; a sequence is 1 or more, and `after` is 0 or an earlier one"));
  }
  if (static_cast<int64_t>(sequence.position.size()) > kMaxPositionBytes) {
    return WithReason(
        absl::InvalidArgumentError(absl::StrCat(
            core.name, ": sequence ", sequence.sequence, " has a position of ",
            sequence.position.size(), " bytes; at most ", kMaxPositionBytes, " are allowed")),
        wire::ErrorReason::LIMIT);
  }
  return absl::OkStatus();
}

absl::Status ReplayError(ServerCore& core, const Session& session, const wire::Sequence& sequence,
                         int64_t applied) {
  core.counters.Add(Counter::kPushesReordered);
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          core.name, " has applied sequence ", applied, " of worker ", session.worker(), " of job ",
          session.job(), "; sequence ", sequence.sequence, " comes after ", sequence.after,
          ": send everything above ", applied, " again, in order")),
      wire::ErrorReason::REPLAY, applied);
}

}  // namespace

bool MayPass(const absl::Status& status) {
  const wire::ErrorReason::type reason = ReasonOf(status);
  return absl::IsResourceExhausted(status) || reason == wire::ErrorReason::BUSY ||
         reason == wire::ErrorReason::MOVED;
}

absl::Status ApplyInOrder(ServerCore& core, const Admitted& admitted, const wire::Caller& caller,
                          const wire::Sequence& sequence,
                          absl::FunctionRef<absl::Status(const Origin&)> apply) {
  RETURN_IF_ERROR(core.flusher.failure());
  if (admitted.session == nullptr) {
    absl::ReaderMutexLock lock(&core.unsequenced);
    return apply(Origin{});
  }
  Session& session = *admitted.session;
  RETURN_IF_ERROR(CheckSequence(core, sequence));
  const NotedLock order(&session.order(), &core.waits, "order", "an earlier call of the worker");
  // A newer incarnation may have come while this call waited for its turn.
  RETURN_IF_ERROR(CheckIncarnation(core, session, caller.incarnation));
  session.Through(ThroughOf(caller.through, caller.boot_id));
  // Its sequence would cover theirs.
  if (session.any_waiting()) {
    RETURN_IF_ERROR(admitted.job->steps().AwaitNoneWaiting(core, admitted, caller.incarnation,
                                                           Deadline::In(kLongestOrderWait)));
  }
  const int64_t applied = session.applied();
  if (ComesTooEarly(sequence.after, applied)) return ReplayError(core, session, sequence, applied);
  const absl::Status status = apply({.worker = session.worker(),
                                     .sequence = sequence.sequence,
                                     .applied = IsApplied(sequence.sequence, applied)});
  CAIRN_CRASH_POINT("push: applied, not in order yet");
  if (!MayPass(status)) session.Applied(sequence.sequence, sequence.position);
  return status;
}

absl::Status ApplyLate(ServerCore& core, const Admitted& admitted, const wire::Caller& caller,
                       const wire::Sequence& sequence,
                       absl::FunctionRef<absl::Status(const Origin&)> apply,
                       const TouchedParts& touched) {
  RETURN_IF_ERROR(core.flusher.failure());
  if (admitted.session == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(core.name, ": a late part comes from a worker; this caller is not sequenced"));
  }
  Session& session = *admitted.session;
  RETURN_IF_ERROR(CheckSequence(core, sequence));
  {
    const NotedLock order(&session.order(), &core.waits, "order", "an earlier call of the worker");
    RETURN_IF_ERROR(CheckIncarnation(core, session, caller.incarnation));
    RETURN_IF_ERROR(apply({.worker = session.worker(),
                           .sequence = sequence.sequence,
                           .applied = IsApplied(sequence.sequence, session.applied())}));
  }
  CAIRN_CRASH_POINT("late part: applied, not durable");
  return AwaitDurable(core, touched);
}

absl::Status AwaitDurable(ServerCore& core, const TouchedParts& touched) {
  if (core.options.durability == Durability::kOff) return absl::OkStatus();
  return touched.counted ? core.flusher.Flush(Flusher::Reach::kSynced)
                         : core.flusher.WriteNow(touched.stripes);
}

absl::Status KeepInOrder(ServerCore& core, const Admitted& admitted, const wire::Caller& caller,
                         const wire::Sequence& sequence,
                         absl::FunctionRef<absl::Status(bool applied)> keep) {
  RETURN_IF_ERROR(core.flusher.failure());
  if (admitted.session == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        core.name, ": a push for a step comes from a worker; this caller is not sequenced"));
  }
  if (!admitted.job->steps().active() ||
      admitted.job->cohort().settings().mode != ConsistencyMode::kSync) {
    return absl::FailedPreconditionError(
        absl::StrCat(core.name, ": a push of worker ", caller.worker, " for a step of job ",
                     caller.job, ", whose consistency is not sync here: say hello with it first"));
  }
  Session& session = *admitted.session;
  RETURN_IF_ERROR(CheckSequence(core, sequence));
  const NotedLock order(&session.order(), &core.waits, "order", "an earlier call of the worker");
  RETURN_IF_ERROR(CheckIncarnation(core, session, caller.incarnation));
  session.Through(ThroughOf(caller.through, caller.boot_id));
  const int64_t applied = session.applied();
  if (ComesTooEarly(sequence.after, session.reached()))
    return ReplayError(core, session, sequence, applied);
  return keep(IsApplied(sequence.sequence, applied));
}

absl::Status AwaitPromised(ServerCore& core) {
  switch (core.options.durability) {
    case Durability::kLog: return core.flusher.Flush(Flusher::Reach::kWritten);
    case Durability::kLogSync: return core.flusher.Flush(Flusher::Reach::kSynced);
    case Durability::kOff:
    case Durability::kSnapshot: return absl::OkStatus();
  }
  return absl::OkStatus();
}

void CarryThrough(const Admitted& admitted, const wire::Caller& caller) {
  const int64_t through = ThroughOf(caller.through, caller.boot_id);
  if (admitted.session == nullptr || through == 0) return;
  Session& session = *admitted.session;
  if (!session.order().TryLock()) return;
  // A newer incarnation may have come since the call was admitted: its numbers are others.
  if (StandingOf(caller.incarnation, session.incarnation()) == Standing::kCurrent) {
    session.Through(through);
  }
  session.order().Unlock();
}

}  // namespace cairn
