#include "worker/client/moves/deliverer.h"

#include <algorithm>
#include <deque>
#include <type_traits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "common/crash_point.h"
#include "common/status.h"
#include "thrift/errors.h"
#include "worker/client/delivery/retained_call.h"

namespace cairn {
namespace {

constexpr absl::Duration kLeftRetry = absl::Milliseconds(10);

bool IsEmpty(const DataCall& call) {
  return WithUpdate(call, [](const auto& update) { return update.items.empty(); });
}

// The sequence counts as used: a server may have a part of it, even where the last attempt sent
// nothing.
void SetUnknown(Exchange& exchange, const absl::Status& status) {
  exchange.sent = true;
  exchange.outcome = {Progress::kUnknown, status};
}

// Whether only pulls have failed. A step whose pull was refused has said itself that its push is
// applied.
bool UpdatesApplied(absl::Span<Exchange* const> exchanges) {
  return std::all_of(exchanges.begin(), exchanges.end(), [](const Exchange* exchange) {
    return !Updates(*exchange) || (exchange->done && exchange->outcome.status.ok());
  });
}

}  // namespace

absl::Status AfterUpdate(const absl::Status& pulled) {
  return Annotate(pulled, "the push is applied, but a pull after it failed");
}

absl::Status Deliverer::Deliver(DataPlan& plan, bool updates, const absl::string_view* position,
                                Deadline deadline, bool* moved) {
  const size_t waves = plan.WaveCount();
  if (waves == 0) return absl::OkStatus();
  absl::Status status = updates && deps_.identity.sequenced()
                            ? DeliverNumbered(plan, position, deadline, moved)
                            : DeliverUnnumbered(plan, updates, deadline, moved);
  if (!status.ok()) return updates && UpdatesApplied(plan.Wave(0)) ? AfterUpdate(status) : status;
  for (size_t wave = 1; wave < waves && status.ok() && !*moved; ++wave) {
    status = Pull(plan, wave, deadline, moved);
  }
  return updates ? AfterUpdate(status) : status;
}

absl::Status Deliverer::Pull(DataPlan& plan, size_t wave, Deadline deadline, bool* moved) {
  const absl::Status status = Attempt(plan, plan.Wave(wave), /*numbered=*/false, deadline);
  // Other errors of the wave are not lost: the pulls are planned and made again.
  *moved = !status.ok() && deps_.maps.Learn(plan.Wave(wave), deadline);
  return *moved ? absl::OkStatus() : status;
}

absl::Status Deliverer::DeliverNumbered(DataPlan& plan, const absl::string_view* position,
                                        Deadline deadline, bool* moved) {
  const absl::Status status = DeliverInOrder(plan, position, deadline, moved);
  deps_.retention_gate.RequestSnapshots();
  return status;
}

absl::Status Deliverer::DeliverInOrder(DataPlan& plan, const absl::string_view* position,
                                       Deadline deadline, bool* moved) {
  RETURN_IF_ERROR(deps_.order.Acquire(deadline));
  const absl::Cleanup release = [this] { deps_.order.Release(); };
  RETURN_IF_ERROR(deps_.retention_gate.WaitForCapacity(plan.Wave(0), deadline));
  CAIRN_CRASH_POINT("worker: before a push is numbered");
  RETURN_IF_ERROR(deps_.order.Number(plan.Wave(0), position));
  const bool known = !deps_.identity.synchronous() && deps_.order.next() <= known_through_;
  const absl::Status status =
      known ? SendKnown(plan, deadline, moved)
            : SendParts(plan, plan.Wave(0), /*numbered=*/true, deadline, moved);
  deps_.order.Settle(plan.Wave(0), status);
  CAIRN_CRASH_POINT("worker: a push is acknowledged by all");
  return status;
}

absl::Status Deliverer::DeliverUnnumbered(DataPlan& plan, bool updates, Deadline deadline,
                                          bool* moved) {
  for (Exchange* exchange : plan.Wave(0)) exchange->repeatable = !Updates(*exchange);
  if (!updates) return Pull(plan, 0, deadline, moved);
  return SendParts(plan, plan.Wave(0), /*numbered=*/false, deadline, moved);
}

absl::Status Deliverer::Attempt(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                                bool numbered, Deadline deadline) {
  return deps_.fan_out.Run(exchanges, deadline, [&](Exchange& exchange) -> absl::Status {
    const bool updates = Updates(exchange);
    if (numbered && updates && !deps_.order.Answered(exchange)) {
      return absl::AbortedError("the server was restarted while it answered");
    }
    if (!updates) exchange.session->Learn(exchange.call.reply.pull.state);
    return plan.StoreReply(exchange, [this](int64_t value) { deps_.staleness.Add(value); });
  });
}

void Deliverer::Begin(const ResumePoint& point) {
  assumed_complete_ = point.assumed_complete;
  known_through_ = 0;
  deps_.sessions.ForEachLive([this](const ServerSession& session) {
    known_through_ = std::max(known_through_, session.had_at_start());
  });
}

bool Deliverer::IsAssumedComplete(int32_t server, int64_t number) const {
  const auto index = static_cast<size_t>(server);
  if (index >= assumed_complete_.size())
    return true;  // the server joined after every stored position
  return std::any_of(assumed_complete_[index].begin(), assumed_complete_[index].end(),
                     [number](const SequenceRange& range) {
                       return range.after < number && number <= range.through;
                     });
}

// Some servers may have acknowledged this sequence to an earlier start of the worker. Rows may have
// moved to them since, so they get their parts before any server that lacks the sequence. A server
// that lacks it, and that no stored position requires it from (`assumed_complete`), also gets its
// part durably before the others. In any other order a start after this one could take the sequence
// for complete while parts are missing (ps_server/MOVES.md).
absl::Status Deliverer::SendKnown(DataPlan& plan, Deadline deadline, bool* moved) {
  const absl::Span<Exchange* const> all = plan.Wave(0);
  const int64_t number = deps_.order.next();
  std::vector<Exchange*> had, lack, assumed_complete;
  for (Exchange* exchange : all) {
    if (!Updates(*exchange)) continue;
    const bool has = exchange->session->had_at_start() >= number;
    (has ? had : lack).push_back(exchange);
    if (!has && IsAssumedComplete(exchange->session->index(), number))
      assumed_complete.push_back(exchange);
  }
  if (had.empty() && assumed_complete.empty())
    return SendParts(plan, all, /*numbered=*/true, deadline, moved);
  // No call may wait for other workers here: the wait would hold back the parts that are not sent
  // yet, and two workers could wait for each other.
  *moved = true;
  for (Exchange* exchange : all) {
    if (exchange->call.kind == CallKind::kStep) exchange->call.kind = CallKind::kPush;
    exchange->sent = false;
    exchange->done = !Updates(*exchange);
    exchange->outcome = {exchange->done ? Progress::kAnswered : Progress::kNotSent,
                         absl::OkStatus()};
  }
  absl::Status status;
  if (!had.empty()) status = SendParts(plan, had, /*numbered=*/true, deadline, moved);
  const bool answered = std::ranges::all_of(had, [](const Exchange* exchange) {
    return exchange->done && exchange->outcome.progress == Progress::kAnswered;
  });
  if (!answered || ReasonOf(status) == wire::ErrorReason::FENCED) return status;
  for (Exchange* exchange : assumed_complete) {
    const absl::Status ahead = SendAhead(*exchange, deadline);
    if (ahead.ok()) continue;
    SetUnknown(*exchange, ahead);
    return ahead;
  }
  if (lack.empty()) return status;
  const absl::Status rest = SendParts(plan, lack, /*numbered=*/true, deadline, moved);
  return status.ok() ? rest : status;
}

absl::Status Deliverer::SendAhead(Exchange& exchange, Deadline deadline) {
  std::vector<Exchange> late(1);
  late[0].session = exchange.session;
  DataCall& call = late[0].call;
  call.kind = exchange.call.kind;
  SequenceOf(call) = SequenceOf(exchange.call);
  return WithUpdate(call, [&](auto& update) {
    using Item = typename std::decay_t<decltype(update.items)>::value_type;
    update.late = true;
    update.items = ItemsOf<Item>(exchange.call);
    return SendLate<Item>(std::move(late), /*numbered=*/true, deadline);
  });
}

absl::Status Deliverer::SendParts(DataPlan& plan, absl::Span<Exchange* const> exchanges,
                                  bool numbered, Deadline deadline, bool* moved) {
  const absl::Status status = Attempt(plan, exchanges, numbered, deadline);
  if (status.ok() || !deps_.maps.Learn(exchanges, deadline)) return status;
  *moved = true;
  return SendMoved(exchanges, numbered, deadline);
}

absl::Status Deliverer::SendMoved(absl::Span<Exchange* const> exchanges, bool numbered,
                                  Deadline deadline) {
  absl::Status status;
  for (const Exchange* exchange : exchanges) {
    // A pull whose wait for other workers expired is planned again, so its error does not count.
    const bool counts =
        Updates(*exchange) || ReasonOf(exchange->outcome.status) != wire::ErrorReason::WAIT_EXPIRED;
    if (counts && !exchange->outcome.status.ok() && !Moved(*exchange)) {
      status = exchange->outcome.status;
    }
  }
  const DataCall& call = exchanges[0]->call;
  const bool contribution = call.kind == CallKind::kPush && call.request.push.step > 0;
  if (contribution && status.ok()) {
    status = ResendContribution(exchanges, deadline);
    // The failure may belong to a server that joined the contribution after the first attempt.
    if (!status.ok()) SetUnknown(*exchanges[0], status);
  }
  for (Exchange* exchange : exchanges) {
    if (!Moved(*exchange)) continue;
    if (status.ok()) status = ResendMoved(*exchange, numbered, deadline);
    // The push is not void: some servers have applied it, and this one has not.
    if (!status.ok()) SetUnknown(*exchange, status);
  }
  return status;
}

// The order of the servers does not matter: no step can close with this contribution before every
// server has its part (ps_server/MOVES.md).
absl::Status Deliverer::ResendContribution(absl::Span<Exchange* const> exchanges,
                                           Deadline deadline) {
  std::vector<Exchange*> all(exchanges.begin(), exchanges.end());
  std::deque<Exchange> joined;  // calls to servers that gained rows of the contribution
  while (deps_.maps.Learn(all, deadline)) {
    RETURN_IF_ERROR(deps_.gate.Check("step", deadline, ClientGate::kRowsMove));
    std::vector<Exchange*> again;
    RETURN_IF_ERROR(deps_.replanner.Repartition(&all, &joined, &again));
    CAIRN_CRASH_POINT("worker: before what has moved is sent");
    for (Exchange* exchange : again) {
      const absl::Status status = RunAgain(*exchange, /*numbered=*/true, deadline);
      if (!status.ok() && !Moved(*exchange)) return status;
    }
  }
  return absl::OkStatus();
}

// Sends the parts for other servers first. A later start of this worker reads the original server's
// sequence as proof that the other servers have their parts.
absl::Status Deliverer::ResendMoved(Exchange& exchange, bool numbered, Deadline deadline) {
  DataCall& call = exchange.call;
  if (call.kind == CallKind::kStep) call.kind = CallKind::kPush;
  if (call.kind == CallKind::kPull) {
    exchange.outcome.status = absl::OkStatus();  // the caller plans the pulls again
    return absl::OkStatus();
  }
  absl::Status status = exchange.outcome.status;
  while (ReasonOf(status) == wire::ErrorReason::MOVED) {
    deps_.maps.Learn(status, deadline);
    RETURN_IF_ERROR(WithUpdate(call, [&](auto& update) {
      return SendMovedItems(exchange, update.items, numbered, deadline);
    }));
    CAIRN_CRASH_POINT("worker: what has moved is sent");
    if (exchange.session->departed() && IsEmpty(call)) {
      exchange.sent = true;  // other servers have it: the sequence is used
      exchange.outcome = {Progress::kAnswered, absl::OkStatus()};
      return absl::OkStatus();
    }
    status = RunAgain(exchange, numbered, deadline);
  }
  return status;
}

template <typename Item>
absl::Status Deliverer::SendMovedItems(Exchange& exchange, std::vector<Item>& items, bool numbered,
                                       Deadline deadline) {
  std::vector<Exchange> late;
  RETURN_IF_ERROR(deps_.replanner.ExtractMovedItems(exchange, items, numbered, &late));
  return SendLate<Item>(std::move(late), numbered, deadline);
}

template <typename Item>
absl::Status Deliverer::SendLate(std::vector<Exchange> late, bool numbered, Deadline deadline) {
  Backoff backoff(deps_.identity.ps_wait, deadline);
  while (!late.empty()) {
    RETURN_IF_ERROR(deps_.gate.Check("push", deadline, ClientGate::kRowsMove));
    CAIRN_CRASH_POINT("worker: before what has moved is sent");
    const absl::Status status = RunLate(late.back(), deadline);
    if (status.ok()) {
      late.pop_back();
      continue;
    }
    if (!Moved(late.back())) return status;
    // The rows have moved again. A server that has left the cluster cannot name their new owner.
    const absl::Status moved = late.back().outcome.status;
    if (MovedOf(moved).empty() && !backoff.Pause(kLeftRetry)) return status;
    deps_.maps.Learn(moved, deadline);
    Exchange again = std::move(late.back());
    late.pop_back();
    std::vector<Item>& left = ItemsOf<Item>(again.call);
    RETURN_IF_ERROR(deps_.replanner.ExtractMovedItems(again, left, numbered, &late));
    if (!again.session->departed() || !left.empty()) late.push_back(std::move(again));
  }
  return absl::OkStatus();
}

absl::Status Deliverer::RunLate(Exchange& late, Deadline deadline) {
  Exchange* const one[] = {&late};
  return deps_.fan_out.Run(one, deadline, [](Exchange& exchange) {
    exchange.session->Learn(exchange.call.reply.push.state);
    return absl::OkStatus();
  });
}

absl::Status Deliverer::RunAgain(Exchange& exchange, bool numbered, Deadline deadline) {
  Exchange* const one[] = {&exchange};
  return deps_.fan_out.Run(one, deadline, [&](Exchange& answered) -> absl::Status {
    if (numbered && !deps_.order.Answered(answered)) {
      return absl::AbortedError("the server was restarted while it answered");
    }
    return absl::OkStatus();
  });
}

}  // namespace cairn
