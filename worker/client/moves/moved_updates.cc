#include "worker/client/moves/moved_updates.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/log.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "worker/client/delivery/retained_call.h"
#include "worker/client/routing/moved_parts.h"

namespace cairn {
namespace {

constexpr absl::Duration kLeftRetry = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

bool Moved(const Exchange& exchange) {
  return ReasonOf(exchange.outcome.status) == wire::ErrorReason::MOVED;
}

// Whose rows stay in a call to that server; one that has left keeps none.
int32_t KeepsFor(const ServerSession& session) { return session.left() ? -1 : session.index(); }

bool Updates(const Exchange& exchange) { return exchange.call.kind != CallKind::kPull; }

bool NothingLeft(const DataCall& call) {
  return call.kind == CallKind::kAssign ? call.assign.items.empty()
                                        : call.request.push.items.empty();
}

}  // namespace

void MovedUpdates::LearnMaps(const absl::Status& moved, Deadline deadline) {
  const auto known = static_cast<int32_t>(sessions_.size());
  absl::Status failure;
  for (const wire::VariableSpec& wire : MovedOf(moved)) {
    absl::StatusOr<VariableSpec> spec = FromWire(wire, 0, std::max(known, kMaxServers));
    // The map says where rows are, and is of no use before its servers are known.
    absl::Status learned = spec.status();
    if (learned.ok()) learned = host_.KnowServersOf(*spec, deadline);
    if (learned.ok()) {
      variables_.Insert(*std::move(spec));
    } else {
      failure = std::move(learned);
    }
  }
  PauseAfter(failure, deadline);
}

// Callers ask again whoever has said that the rows have gone, which takes no time.
void MovedUpdates::PauseAfter(const absl::Status& failure, Deadline deadline) {
  absl::Duration pause;
  {
    const absl::MutexLock lock(&failure_mutex_);
    failure_ = failure;
    if (failure.ok()) {
      next_pause_ = kLeftRetry;
      return;
    }
    pause = std::min(next_pause_, deadline.Remaining());
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
  }
  LOG_EVERY_T(WARNING, 10) << identity_.task
                           << " cannot follow rows that have moved: " << failure.message();
  StopFlag().WaitFor(pause);  // the same clock as deadlines
}

absl::Status MovedUpdates::failure() const {
  const absl::MutexLock lock(&failure_mutex_);
  return failure_;
}

void MovedUpdates::Begin(const ResumePoint& point) {
  unasked_ = point.unasked;
  known_through_ = 0;
  sessions_.ForEachLive([this](const ServerSession& session) {
    known_through_ = std::max(known_through_, session.had_at_start());
  });
}

bool MovedUpdates::IsUnasked(int32_t server, int64_t number) const {
  const auto index = static_cast<size_t>(server);
  if (index >= unasked_.size()) return true;  // it came later than anybody's position
  return std::any_of(unasked_[index].begin(), unasked_[index].end(),
                     [number](const SequenceRange& range) {
                       return range.after < number && number <= range.through;
                     });
}

absl::Status MovedUpdates::SendNumbered(absl::Span<Exchange* const> all, Attempt run,
                                        Deadline deadline, bool* moved) {
  const bool known = !identity_.synchronous() && order_.next() <= known_through_;
  return known ? SendKnown(all, run, deadline, moved) : SendPartsOf(all, run, deadline, moved);
}

// An earlier start may have had some servers' acknowledgement of this number. They get what it
// computes anew, of rows that have come there since, before any server that lacks the number; so do
// those that lack it and that an earlier start's positions do not ask for it, and durably, too.
// Else a start after this one would take the number for everybody's too early (ps_server/MOVES.md).
absl::Status MovedUpdates::SendKnown(absl::Span<Exchange* const> all, Attempt run,
                                     Deadline deadline, bool* moved) {
  const int64_t number = order_.next();
  std::vector<Exchange*> had, lack, unasked;
  for (Exchange* exchange : all) {
    if (!Updates(*exchange)) continue;
    const bool has = exchange->session->had_at_start() >= number;
    (has ? had : lack).push_back(exchange);
    if (!has && IsUnasked(exchange->session->index(), number)) unasked.push_back(exchange);
  }
  if (had.empty() && unasked.empty()) return SendPartsOf(all, run, deadline, moved);
  // Whoever waited for others now would keep from them what it has not sent yet.
  *moved = true;
  for (Exchange* exchange : all) {
    if (exchange->call.kind == CallKind::kStep) exchange->call.kind = CallKind::kPush;
    exchange->sent = false;
    exchange->done = !Updates(*exchange);
    exchange->outcome = {exchange->done ? Progress::kAnswered : Progress::kNotSent,
                         absl::OkStatus()};
  }
  absl::Status status;
  if (!had.empty()) status = SendPartsOf(had, run, deadline, moved);
  const bool answered = std::all_of(had.begin(), had.end(), [](const Exchange* exchange) {
    return exchange->done && exchange->outcome.progress == Progress::kAnswered;
  });
  if (!answered || ReasonOf(status) == wire::ErrorReason::FENCED) return status;
  for (Exchange* exchange : unasked) {
    const absl::Status ahead = SendAhead(*exchange, deadline);
    if (ahead.ok()) continue;
    exchange->sent = true;  // perhaps
    exchange->outcome = {Progress::kUnknown, ahead};
    return ahead;
  }
  if (lack.empty()) return status;
  const absl::Status rest = SendPartsOf(lack, run, deadline, moved);
  return status.ok() ? rest : status;
}

absl::Status MovedUpdates::SendAhead(Exchange& exchange, Deadline deadline) {
  std::vector<Exchange> late(1);
  late[0].session = exchange.session;
  DataCall& call = late[0].call;
  call.kind = exchange.call.kind;
  SequenceOf(call) = SequenceOf(exchange.call);
  if (call.kind == CallKind::kAssign) {
    call.assign.late = true;
    call.assign.items = exchange.call.assign.items;
    return SendLate<wire::AssignItem>(std::move(late), /*numbered=*/true, deadline);
  }
  call.request.push.late = true;
  call.request.push.items = exchange.call.request.push.items;
  return SendLate<wire::PushItem>(std::move(late), /*numbered=*/true, deadline);
}

absl::Status MovedUpdates::SendPartsOf(absl::Span<Exchange* const> exchanges, Attempt run,
                                       Deadline deadline, bool* moved) {
  const absl::Status status = run(exchanges);
  if (status.ok() || !LearnMaps(exchanges, deadline)) return status;
  *moved = true;
  return Send(exchanges, /*numbered=*/true, deadline);
}

bool MovedUpdates::LearnMaps(absl::Span<Exchange* const> exchanges, Deadline deadline) {
  bool any = false;
  for (const Exchange* exchange : exchanges) {
    if (!Moved(*exchange)) continue;
    LearnMaps(exchange->outcome.status, deadline);
    any = true;
  }
  return any;
}

absl::Status MovedUpdates::Send(absl::Span<Exchange* const> exchanges, bool numbered,
                                Deadline deadline) {
  absl::Status status;
  for (const Exchange* exchange : exchanges) {
    // A pull that waits for others in vain follows anew.
    const bool counts =
        Updates(*exchange) || ReasonOf(exchange->outcome.status) != wire::ErrorReason::WAIT_EXPIRED;
    if (counts && !exchange->outcome.status.ok() && !Moved(*exchange)) {
      status = exchange->outcome.status;
    }
  }
  const DataCall& call = exchanges[0]->call;
  const bool contribution = call.kind == CallKind::kPush && call.request.push.step > 0;
  if (contribution && status.ok()) {
    status = ContributeAnew(exchanges, deadline);
    // What came later may be what failed.
    if (!status.ok()) exchanges[0]->outcome = {Progress::kUnknown, status};
  }
  for (Exchange* exchange : exchanges) {
    if (!Moved(*exchange)) continue;
    if (status.ok()) status = SendRest(*exchange, numbered, deadline);
    // Some servers have the push, and this one does not: it is not void.
    if (!status.ok()) exchange->outcome = {Progress::kUnknown, status};
  }
  return status;
}

// No step can close with any of it before every server has its part (ps_server/MOVES.md), so the
// order does not matter.
absl::Status MovedUpdates::ContributeAnew(absl::Span<Exchange* const> exchanges,
                                          Deadline deadline) {
  std::vector<Exchange*> all(exchanges.begin(), exchanges.end());
  std::deque<Exchange> joined;  // of servers that have come since
  while (LearnMaps(all, deadline)) {
    RETURN_IF_ERROR(host_.CheckOpen("step, while rows move", deadline));
    std::vector<Exchange*> again;
    RETURN_IF_ERROR(Repartition(&all, &joined, &again));
    CAIRN_CRASH_POINT("worker: before what has moved is sent");
    for (Exchange* exchange : again) {
      const absl::Status status = RunExchange(*exchange, /*numbered=*/true, deadline);
      if (!status.ok() && !Moved(*exchange)) return status;
    }
  }
  return absl::OkStatus();
}

// By one map of each variable, though others are learned meanwhile: rows of two could not share an
// item. A server that has taken its part already has none that go elsewhere.
absl::Status MovedUpdates::Repartition(std::vector<Exchange*>* all, std::deque<Exchange>* joined,
                                       std::vector<Exchange*>* again) {
  absl::flat_hash_map<std::string, ClientVariablePtr> maps;
  const auto find = [&](absl::string_view name) {
    const auto [map, is_new] = maps.try_emplace(name, nullptr);
    if (is_new) map->second = variables_.Find(name);
    return map->second;
  };
  std::map<int32_t, std::vector<wire::PushItem>> arriving;  // by server
  for (Exchange* exchange : *all) {
    std::vector<wire::PushItem>& items = exchange->call.request.push.items;
    ASSIGN_OR_RETURN(MovedParts<wire::PushItem> parts,
                     CutAnew(items, KeepsFor(*exchange->session), find));
    items = std::move(parts.here);
    for (auto& [server, elsewhere] : parts.elsewhere) {
      RETURN_IF_ERROR(AddItems(std::move(elsewhere), &arriving[server]));
    }
  }
  bool any_new = false;
  for (const auto& [server, items] : arriving) {
    const bool there = std::any_of(all->begin(), all->end(), [server = server](const Exchange* to) {
      return to->session->index() == server;
    });
    if (there) continue;
    Exchange& exchange = joined->emplace_back();
    exchange.session = &sessions_[static_cast<size_t>(server)];
    exchange.call.kind = CallKind::kPush;
    exchange.call.request.push.step = all->front()->call.request.push.step;
    exchange.call.request.push.rows = all->front()->call.request.push.rows;
    all->push_back(&exchange);
    any_new = true;
  }
  // The others are to know that this one has a part.
  if (any_new) RETURN_IF_ERROR(order_.NumberAgain(*all));
  for (Exchange* exchange : *all) {
    const auto arrives = arriving.extract(exchange->session->index());
    wire::PushRequest& push = exchange->call.request.push;
    if (!arrives.empty()) RETURN_IF_ERROR(AddItems(std::move(arrives.mapped()), &push.items));
    if (exchange->session->left() && push.items.empty()) {
      exchange->sent = exchange->done = true;
      exchange->outcome = {Progress::kAnswered, absl::OkStatus()};
      exchange->call.reply.push = {};  // of an earlier call
    } else if (!arrives.empty() || any_new || Moved(*exchange)) {
      push.replaces = true;
      again->push_back(exchange);
    }
  }
  return absl::OkStatus();
}

// The order matters: that the server it was for has its part says that the others have theirs, to a
// start of this worker that asks what it is to compute again.
absl::Status MovedUpdates::SendRest(Exchange& exchange, bool numbered, Deadline deadline) {
  DataCall& call = exchange.call;
  if (call.kind == CallKind::kStep) call.kind = CallKind::kPush;
  if (call.kind == CallKind::kPull) {
    exchange.outcome.status = absl::OkStatus();  // the pulls follow
    return absl::OkStatus();
  }
  absl::Status status = exchange.outcome.status;
  while (ReasonOf(status) == wire::ErrorReason::MOVED) {
    LearnMaps(status, deadline);
    RETURN_IF_ERROR(call.kind == CallKind::kAssign
                        ? SendParts(exchange, call.assign.items, numbered, deadline)
                        : SendParts(exchange, call.request.push.items, numbered, deadline));
    CAIRN_CRASH_POINT("worker: what has moved is sent");
    if (exchange.session->left() && NothingLeft(call)) {
      exchange.sent = true;  // to others: the number is used
      exchange.outcome = {Progress::kAnswered, absl::OkStatus()};
      return absl::OkStatus();
    }
    status = RunExchange(exchange, numbered, deadline);
  }
  return status;
}

template <typename Item>
absl::Status MovedUpdates::SendParts(Exchange& exchange, std::vector<Item>& items, bool numbered,
                                     Deadline deadline) {
  std::vector<Exchange> late;
  RETURN_IF_ERROR(CutParts(exchange, items, numbered, &late));
  return SendLate<Item>(std::move(late), numbered, deadline);
}

template <typename Item>
absl::Status MovedUpdates::SendLate(std::vector<Exchange> late, bool numbered, Deadline deadline) {
  Backoff backoff(identity_.ps_wait, deadline);
  while (!late.empty()) {
    RETURN_IF_ERROR(host_.CheckOpen("push, while rows move", deadline));
    CAIRN_CRASH_POINT("worker: before what has moved is sent");
    const absl::Status status = RunLate(late.back(), deadline);
    if (status.ok()) {
      late.pop_back();
      continue;
    }
    if (!Moved(late.back())) return status;
    // Moved on meanwhile; a server that has left does not say where to.
    const absl::Status moved = late.back().outcome.status;
    if (MovedOf(moved).empty() && !backoff.Pause(kLeftRetry)) return status;
    LearnMaps(moved, deadline);
    Exchange again = std::move(late.back());
    late.pop_back();
    std::vector<Item>& left = ItemsOf<Item>(again.call);
    RETURN_IF_ERROR(CutParts(again, left, numbered, &late));
    if (!again.session->left() || !left.empty()) late.push_back(std::move(again));
  }
  return absl::OkStatus();
}

template <typename Item>
absl::Status MovedUpdates::CutParts(const Exchange& exchange, std::vector<Item>& items,
                                    bool numbered, std::vector<Exchange>* late) {
  const auto find = [this](absl::string_view name) { return variables_.Find(name); };
  ASSIGN_OR_RETURN(MovedParts<Item> parts, CutAnew(items, KeepsFor(*exchange.session), find));
  for (auto& [server, elsewhere] : parts.elsewhere) {
    Exchange& part = late->emplace_back();
    part.session = &sessions_[static_cast<size_t>(server)];
    part.repeatable = numbered;
    part.call.kind = exchange.call.kind;
    SequenceOf(part.call) = SequenceOf(exchange.call);
    if (part.call.kind == CallKind::kAssign) {
      part.call.assign.late = numbered;
    } else {
      part.call.request.push.late = numbered;
    }
    ItemsOf<Item>(part.call) = std::move(elsewhere);
  }
  items = std::move(parts.here);
  return absl::OkStatus();
}

absl::Status MovedUpdates::RunLate(Exchange& late, Deadline deadline) {
  int64_t retries = 0;
  Exchange* const one[] = {&late};
  const absl::Status status = fan_out_.Run(
      one, /*finish_all=*/true, deadline,
      [](Exchange& exchange) {
        exchange.session->Learn(exchange.call.reply.push.state);
        return absl::OkStatus();
      },
      &retries);
  host_.CountRetries(retries);
  return status;
}

absl::Status MovedUpdates::RunExchange(Exchange& exchange, bool numbered, Deadline deadline) {
  int64_t retries = 0;
  Exchange* const one[] = {&exchange};
  const absl::Status status = fan_out_.Run(
      one, /*finish_all=*/true, deadline,
      [&](Exchange& answered) -> absl::Status {
        if (numbered && !order_.Answered(answered)) {
          return absl::AbortedError("the server was restarted while it answered");
        }
        return absl::OkStatus();
      },
      &retries);
  host_.CountRetries(retries);
  return status;
}

}  // namespace cairn
