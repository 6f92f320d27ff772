#include "ps_server/core/ordered_call.h"

#include "common/crash_point.h"
#include "common/errors.h"
#include "common/status.h"
#include "ps_server/jobs/order_rules.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

absl::Status CheckSequence(absl::string_view server, const wire::Sequence& sequence) {
  if (sequence.sequence < 1 || sequence.after < 0 || sequence.after >= sequence.sequence) {
    return InvalidArgument(server, ": sequence ", sequence.sequence, " after ", sequence.after,
                           "; a sequence is 1 or more, and `after` is 0 or an earlier one");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsRetryable(const absl::Status& status) {
  const wire::ErrorReason::type reason = ReasonOf(status);
  return absl::IsResourceExhausted(status) || reason == wire::ErrorReason::BUSY ||
         reason == wire::ErrorReason::MOVED;
}

absl::Status CheckSequenced(absl::string_view server, const Admitted& admitted,
                            absl::string_view what) {
  if (admitted.session != nullptr) return absl::OkStatus();
  return InvalidArgument(server, ": ", what, " comes from a worker; this caller is not sequenced");
}

absl::Status CheckIncarnation(UpdateOrder& order, const Session& session, int64_t incarnation) {
  const int64_t known = session.incarnation();
  const IncarnationState standing = IncarnationStateOf(incarnation, known);
  if (standing == IncarnationState::kCurrent) return absl::OkStatus();
  if (standing == IncarnationState::kFenced) {
    order.counters.Add("fenced");
    return WithReason(
        FailedPrecondition(order.server, ": worker ", session.worker(), " of job ", session.job(),
                           " calls as incarnation ", incarnation, ", but incarnation ", known, " (",
                           session.holder(), ") has taken its place: this process must stop"),
        wire::ErrorReason::FENCED);
  }
  return WithReason(FailedPrecondition(order.server, ": worker ", session.worker(), " of job ",
                                       session.job(), " calls as incarnation ", incarnation,
                                       ", known here is ", known, ": say hello first"),
                    wire::ErrorReason::REBOOTED);
}

OrderedCall::OrderedCall(UpdateOrder& order, const Admitted& admitted, const wire::Caller& caller,
                         const wire::Sequence& sequence)
    : shared_(order), session_(admitted.session.get()), caller_(caller), sequence_(sequence) {}

absl::Status OrderedCall::Lock() {
  RETURN_IF_ERROR(shared_.flusher.failure());
  if (session_ == nullptr) {
    unsequenced_.emplace(&shared_.unsequenced, &shared_.waits, "order",
                         "a move, which waits for updates that began earlier");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckSequence(shared_.server, sequence_));
  order_.emplace(&session_->order(), &shared_.waits, "order", "an earlier call of the worker");
  // A newer incarnation may have said hello while this call waited for the lock.
  RETURN_IF_ERROR(CheckIncarnation(shared_, *session_, caller_.incarnation));
  session_->Through(ThroughOf(caller_.through, caller_.boot_id));
  return absl::OkStatus();
}

void OrderedCall::Unlock() {
  order_.reset();
  unsequenced_.reset();
}

bool OrderedCall::follows_contributions() const {
  return session_ != nullptr && session_->any_waiting();
}

absl::StatusOr<Origin> OrderedCall::PlaceUpdate() {
  if (session_ == nullptr) return Origin{};
  const int64_t applied = session_->applied();
  if (ComesTooEarly(sequence_.after, applied)) return ReplayError(applied);
  return OriginAt(applied);
}

absl::StatusOr<bool> OrderedCall::PlaceContribution() {
  const int64_t applied = session_->applied();
  if (ComesTooEarly(sequence_.after, session_->reached())) return ReplayError(applied);
  return IsApplied(sequence_.sequence, applied);
}

Origin OrderedCall::PlaceLatePart() const { return OriginAt(session_->applied()); }

Origin OrderedCall::OriginAt(int64_t applied) const {
  return {.worker = session_->worker(),
          .sequence = sequence_.sequence,
          .applied = IsApplied(sequence_.sequence, applied)};
}

void OrderedCall::Commit(const absl::Status& outcome) {
  if (session_ == nullptr) return;
  CAIRN_CRASH_POINT("push: applied, not in order yet");
  if (!IsRetryable(outcome)) session_->Applied(sequence_.sequence, sequence_.position);
}

absl::Status OrderedCall::ReplayError(int64_t applied) const {
  shared_.counters.Add("pushes_reordered");
  return WithReason(
      FailedPrecondition(shared_.server, " has applied sequence ", applied, " of worker ",
                         session_->worker(), " of job ", session_->job(), "; sequence ",
                         sequence_.sequence, " comes after ", sequence_.after,
                         ": send everything above ", applied, " again, in order"),
      wire::ErrorReason::REPLAY, applied);
}

void SkipVoidSequences(const Admitted& admitted, const wire::Caller& caller) {
  const int64_t through = ThroughOf(caller.through, caller.boot_id);
  if (admitted.session == nullptr || through == 0) return;
  Session& session = *admitted.session;
  if (!session.order().TryLock()) return;
  // A newer incarnation may have said hello since the call was admitted. It may give the same
  // sequence numbers to other updates.
  if (IncarnationStateOf(caller.incarnation, session.incarnation()) == IncarnationState::kCurrent) {
    session.Through(through);
  }
  session.order().Unlock();
}

}  // namespace cairn
