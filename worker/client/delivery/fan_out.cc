#include "worker/client/delivery/fan_out.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/hash.h"
#include "common/monotonic_sleep.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/errors.h"
#include "worker/client/delivery/joined_errors.h"

namespace cairn {
namespace {

// Limits how often a call follows a server that keeps restarting.
constexpr int kMaxRenewals = 10;

// Longest wait for other workers within one attempt. Each expired wait is logged with the missing
// workers.
constexpr absl::Duration kLongestStepWait = absl::Seconds(10);
// With less time left no server is asked again: its answer would come too late.
constexpr absl::Duration kShortestStepWait = absl::Milliseconds(20);

// The wait is shorter than the attempt, so that the answer, which names the missing workers,
// arrives within it.
double StepWaitSeconds(Deadline attempt_end) {
  const absl::Duration wait = std::min(kLongestStepWait, attempt_end.Remaining() * 0.8);
  return absl::ToDoubleSeconds(std::max(wait, absl::Milliseconds(1)));
}

}  // namespace

bool Backoff::Pause(absl::Duration retry_after) {
  if (!give_up_) give_up_ = Deadline::Earlier(deadline_, Deadline::In(ps_wait_));
  const absl::Duration left = give_up_->Remaining();
  if (left <= absl::ZeroDuration()) return false;
  const int64_t now = absl::ToInt64Nanoseconds(MonotonicNow());
  const double cut = static_cast<double>(MixBits(static_cast<uint64_t>(now)) >> 11) * 0x1p-54;
  if (retry_after > absl::ZeroDuration()) {
    const absl::Duration pause = retry_after * (1 + cut / 2);
    if (pause >= left) return false;
    MonotonicSleep(pause);
  } else {
    MonotonicSleep(std::min(left, next_ * (1 - cut)));
    next_ = std::min(next_ * 2, absl::Seconds(1));
  }
  return !deadline_.Expired();  // a thread may wake later than it asked for
}

void FanOut::Send(Exchange& exchange, Deadline deadline) {
  DataCall& call = exchange.call;
  exchange.outcome = exchange.session->link().Take(deadline, &exchange.channel);
  if (exchange.channel == nullptr) return;
  ServerSession& session = *exchange.session;
  switch (call.kind) {
    case CallKind::kPush: exchange.boot_id = session.FillCaller(&call.request.push.caller); break;
    case CallKind::kAssign: exchange.boot_id = session.FillCaller(&call.assign.caller); break;
    case CallKind::kPull: exchange.boot_id = session.FillCaller(&call.request.pull.caller); break;
    case CallKind::kStep:
      exchange.boot_id = session.FillCaller(&call.request.push.caller);
      call.request.pull.caller = call.request.push.caller;
      break;
  }
  session.FillSteps(&call);
  // Reset the optional fields: decoding leaves a field that the reply omits at its old value.
  for (wire::PulledItem& item : call.reply.pull.items) {
    item.__isset.mark = item.__isset.changed = false;
  }
  if (call.request.pull.step != 0) call.request.pull.wait_seconds = StepWaitSeconds(deadline);
  exchange.sent = true;
  exchange.outcome = exchange.channel->Send(call, deadline);
}

bool FanOut::Receive(Exchange& exchange, Deadline deadline,
                     absl::FunctionRef<absl::Status(Exchange&)> answered, Next* next) {
  ServerSession& session = *exchange.session;
  if (exchange.channel != nullptr) {
    if (exchange.outcome.progress == Progress::kAnswered && exchange.outcome.status.ok()) {
      exchange.outcome = exchange.channel->Receive(exchange.call, deadline);
    }
    session.link().Return(exchange.channel, exchange.outcome.progress);
    exchange.channel = nullptr;
  }
  if (ReasonOf(exchange.outcome.status) == wire::ErrorReason::WAIT_EXPIRED) {
    exchange.expired_wait = exchange.outcome.status;
  }
  const RetryDecision decision =
      session.ClassifyOutcome(&exchange.outcome, exchange.repeatable, exchange.boot_id, deadline);
  switch (decision) {
    case RetryDecision::kAgain: return true;
    case RetryDecision::kAgainLater:
      next->pause = true;
      next->retry_after = std::max(next->retry_after, RetryAfterOf(exchange.outcome.status));
      return true;
    case RetryDecision::kFail: exchange.done = !PushAlone(exchange); return !exchange.done;
    case RetryDecision::kDone: break;
  }
  exchange.outcome.status = answered(exchange);
  if (absl::IsAborted(exchange.outcome.status)) return true;
  if (exchange.outcome.status.ok() && !exchange.refused_step.ok()) {
    exchange.outcome.status = Annotate(
        exchange.refused_step,
        absl::StrCat("the push is applied on ", session.name(), ", but nothing was pulled"));
  }
  exchange.done = true;
  return false;
}

// Makes a refused step a plain push. False where nothing is to be sent: the push may not be
// repeated, the caller splits it because rows have moved, or the worker is fenced.
bool FanOut::PushAlone(Exchange& exchange) {
  const wire::ErrorReason::type reason = ReasonOf(exchange.outcome.status);
  if (exchange.call.kind != CallKind::kStep || !exchange.repeatable ||
      exchange.outcome.progress != Progress::kAnswered || reason == wire::ErrorReason::MOVED ||
      reason == wire::ErrorReason::FENCED) {
    return false;
  }
  exchange.refused_step = exchange.outcome.status;
  exchange.call.kind = CallKind::kPush;
  return true;
}

// Ends the exchange's wait for other workers, who may themselves need the call that failed. An
// update still goes out.
void FanOut::StopWaiting(Exchange& exchange) {
  if (exchange.expired_wait.ok()) return;
  if (exchange.call.kind == CallKind::kPull) {
    exchange.done = true;
    exchange.outcome = {Progress::kAnswered, exchange.expired_wait};
  } else if (exchange.call.kind == CallKind::kStep) {
    exchange.call.kind = CallKind::kPush;
    exchange.expired_wait = absl::OkStatus();
  }
}

absl::Status FanOut::Run(absl::Span<Exchange* const> exchanges, Deadline deadline,
                         absl::FunctionRef<absl::Status(Exchange&)> answered) {
  bool finish_all = false;
  for (Exchange* exchange : exchanges) {
    finish_all = finish_all || Updates(*exchange);
    exchange->sent = exchange->done = false;
    exchange->expired_wait = exchange->refused_step = absl::OkStatus();
    exchange->outcome = {Progress::kNotSent, absl::OkStatus()};
  }
  // After an exception, a connection with an answer under way would be left in a reused exchange.
  const absl::Cleanup close = [exchanges] {
    for (Exchange* exchange : exchanges) {
      if (exchange->channel == nullptr) continue;
      exchange->session->link().Return(exchange->channel, Progress::kUnknown);
      exchange->channel = nullptr;
    }
  };
  Backoff backoff(limits_.ps_wait, deadline);
  bool failed = false;
  // Expired waits do not count as renewals: each took its time on the server.
  int renewals = 0;
  while (true) {
    const Deadline attempt_end = Deadline::Earlier(deadline, Deadline::In(limits_.rpc_timeout));
    for (Exchange* exchange : exchanges) {
      if (exchange->done) continue;
      CAIRN_CRASH_POINT("worker: before a server is sent its part");
      Send(*exchange, attempt_end);
      CAIRN_CRASH_POINT("worker: a server is sent its part");
    }
    bool again = false, waits = false, waited = false;
    Next next;
    for (Exchange* exchange : exchanges) {
      if (exchange->done) continue;
      if (Receive(*exchange, attempt_end, answered, &next)) {
        again = true;
        if (failed) StopWaiting(*exchange);
      }
      CAIRN_CRASH_POINT("worker: a server has answered");
      if (!exchange->done && !exchange->expired_wait.ok()) waits = true;
      if (ReasonOf(exchange->outcome.status) == wire::ErrorReason::WAIT_EXPIRED) waited = true;
      if (exchange->done && !exchange->outcome.status.ok()) failed = true;
    }
    if (!again || (failed && !finish_all)) break;
    if (!waited && ++renewals > kMaxRenewals) next.pause = true;
    if (deadline.Expired() || (next.pause && !backoff.Pause(next.retry_after))) break;
    if (waits && deadline.Remaining() < kShortestStepWait) break;
    CountRetry();
  }
  absl::InlinedVector<absl::Status, 4> errors;
  for (Exchange* exchange : exchanges) {
    if (!exchange->done && !(failed && !finish_all)) {
      // The error of the expired wait says more than a timeout of the last attempt.
      Outcome& outcome = exchange->outcome;
      const bool waited = !exchange->expired_wait.ok() && absl::IsDeadlineExceeded(outcome.status);
      if (waited) outcome.status = exchange->expired_wait;
      // The deadline passed before the push could be sent again.
      const bool refused = !outcome.status.ok() && outcome.status == exchange->refused_step;
      if (!refused) {
        outcome.status = exchange->session->GiveUpError(outcome, waited || deadline.Expired());
      }
    }
    if (!exchange->outcome.status.ok()) errors.push_back(exchange->outcome.status);
  }
  return Join(errors);
}

absl::Status FanOut::Call(
    ServerSession& session, absl::string_view method, absl::Duration attempt_limit,
    absl::Duration ps_wait, Deadline deadline,
    absl::FunctionRef<void(wire::ParameterServerIf&, const wire::Caller&)> body, bool may_be_slow) {
  Backoff backoff(ps_wait, deadline);
  int renewals = 0;
  while (true) {
    const Deadline attempt_end = Deadline::Earlier(deadline, Deadline::In(attempt_limit));
    Channel* channel = nullptr;
    Outcome outcome = session.link().Take(attempt_end, &channel);
    wire::Caller caller;
    const int64_t boot_id = session.FillCaller(&caller);
    if (channel != nullptr) {
      outcome = channel->Call(
          method, [&](wire::ParameterServerIf& service) { body(service, caller); }, attempt_end);
      session.link().Return(channel, outcome.progress);
    }
    const RetryDecision decision =
        session.ClassifyOutcome(&outcome, /*repeatable=*/true, boot_id, attempt_end, !may_be_slow);
    if (decision == RetryDecision::kDone || decision == RetryDecision::kFail) return outcome.status;
    const bool waited = ReasonOf(outcome.status) == wire::ErrorReason::WAIT_EXPIRED;
    const bool pause =
        decision == RetryDecision::kAgainLater || (!waited && ++renewals > kMaxRenewals);
    if (deadline.Expired() || (pause && !backoff.Pause(RetryAfterOf(outcome.status)))) {
      return session.GiveUpError(outcome, deadline.Expired());
    }
    CountRetry();
  }
}

}  // namespace cairn
