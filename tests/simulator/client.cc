#include "tests/simulator/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/errors.h"

namespace cairn::simulator {
namespace {

// PsClient's own.
constexpr absl::Duration kPsWait = absl::Seconds(60), kRpcTimeout = absl::Seconds(30);
constexpr absl::Duration kHeartbeatTimeout = absl::Seconds(1);
constexpr int64_t kRetainedBytes = int64_t{1} << 30;

ClientIdentity IdentityOf(const Options& options, const Process& process, size_t slots,
                          const Membership::Flags& flags, Retention* retention, StepClock* clock,
                          StepBook* steps) {
  return {.job = kJob,
          .task = absl::StrCat("worker:", process.worker),
          .origin = absl::StrCat("host/", process.number),
          .start = process.number + 1,
          .worker = process.worker,
          .server_count = static_cast<int32_t>(slots),
          .most_servers = &flags.most_servers,
          .fenced = &flags.fenced,
          .ps_wait = kPsWait,
          .retention = retention,
          .consistency = options.consistency,
          .expected_workers = options.sync() ? options.workers : 0,
          .clock = clock,
          .steps = options.sync() ? steps : nullptr};
}

std::vector<std::unique_ptr<ServerSession>> SessionsOf(Network* network, const Workload& work,
                                                       const std::shared_ptr<Process>& process,
                                                       const ClientIdentity* identity) {
  std::vector<std::unique_ptr<ServerSession>> sessions;
  const std::vector<int32_t>& servers = work.Servers(process->worker);
  for (size_t slot = 0; slot < servers.size(); ++slot) {
    sessions.push_back(std::make_unique<ServerSession>(
        static_cast<int32_t>(slot), absl::StrCat("ps:", servers[slot]),
        SimulatedLink(network, process, slot, servers.size(), servers[slot]), identity));
  }
  return sessions;
}

}  // namespace

Client::Client(Network* network, const Workload& work, std::shared_ptr<Process> process)
    : network_(*network),
      work_(work),
      process_(std::move(process)),
      retention_(kRetainedBytes),
      identity_(IdentityOf(network->options(), *process_, work.Servers(process_->worker).size(),
                           flags_, &retention_, &clock_, &steps_)),
      limits_{.ps_wait = kPsWait, .rpc_timeout = kRpcTimeout},
      sessions_(SessionsOf(network, work, process_, &identity_)),
      order_(sessions_),
      fan_out_(&limits_),
      exchanges_(sessions_.size()),
      membership_(identity_, {kPsWait, kRpcTimeout}, sessions_, order_, variables_, flags_, *this) {
  for (size_t slot = 0; slot < sessions_.size(); ++slot) {
    exchanges_[slot].session = &sessions_[slot];
  }
}

absl::Status Client::ForEachServer(absl::Span<const int32_t> slots,
                                   absl::FunctionRef<absl::Status(size_t)> body) {
  std::vector<absl::Status> statuses(slots.size());
  size_t left = slots.size();
  Scheduler& scheduler = Scheduler::Current();
  for (size_t i = 0; i < slots.size(); ++i) {
    scheduler.Spawn("a call to one of all servers", [&, i] {
      const auto slot = static_cast<size_t>(slots[i]);
      statuses[i] = body(slot);
      if (sessions_[slot].left()) statuses[i] = absl::OkStatus();
      if (--left == 0) scheduler.WakeAll(&left);
    });
  }
  while (left > 0) scheduler.WaitOn(&left, kForever);
  return Join(statuses);
}

absl::Status Client::Connect() {
  const Deadline deadline = Deadline::In(kCallDeadline);
  wire::HelloReply first;
  RETURN_IF_ERROR(membership_.GreetFirst(deadline, &first));
  if (identity_.synchronous()) steps_.Begin(first.step, first.step - 1);
  const std::vector<int32_t> servers = sessions_.Live();
  std::vector<wire::HelloReply> replies(sessions_.size());
  replies[0] = std::move(first);
  RETURN_IF_ERROR(ForEachServer(absl::MakeConstSpan(servers).subspan(1), [&](size_t slot) {
    return membership_.Greet(sessions_[slot], deadline, &replies[slot]);
  }));
  Resume(replies);
  return network_.options().rows_move() ? membership_.Describe(deadline).status()
                                        : absl::OkStatus();
}

void Client::Resume(const std::vector<wire::HelloReply>& replies) {
  const std::vector<ResumeAnswer> answers = membership_.Answers(replies);
  ResumePoint point = ChooseResumePoint(answers);
  if (network_.options().mutation == Mutation::kResumesHighest) {
    for (size_t slot = 0; slot < answers.size(); ++slot) {
      point.last_part[slot] = answers[slot].applied;
      point.sequence = std::max(point.sequence, answers[slot].applied);
    }
  }
  for (size_t slot = 0; slot < replies.size(); ++slot) {
    if (sessions_[slot].left()) continue;
    wire::HelloReply reply = replies[slot];
    if (network_.options().mutation == Mutation::kHadItLast) reply.state.durable = 0;
    sessions_[slot].Begin(reply, membership_.incarnation(), point.last_part[slot], point.sequence);
  }
  order_.Reset(point.sequence, point.position);
  if (network_.options().mutation == Mutation::kNoneAhead) {
    for (std::vector<SequenceRange>& ranges : point.unasked) ranges.clear();
  }
  moved_updates_.Begin(point);
  item_ = point.sequence;
  if (identity_.synchronous()) ResumeSteps(point, replies);
}

std::vector<std::string> Client::Gone() const {
  std::vector<std::string> names;
  sessions_.ForEachLive([&](const ServerSession& session) {
    if (session.gone()) names.push_back(session.name());
  });
  return names;
}

bool Client::Prepare(Exchange* exchange, size_t slot, int64_t step) {
  const uint32_t stripes = work_.Stripes(process_->worker, next(), slot);
  const bool everywhere = identity_.consistency.mode == ConsistencyMode::kSsp;
  if (stripes == 0 && !everywhere) return false;
  DataCall& call = exchange->call;
  call.kind = stripes != 0 ? CallKind::kStep : CallKind::kPull;
  call.request.pull.step = step;
  call.request.push.items.clear();
  if (stripes != 0) FillPush(&call.request.push, stripes);
  return true;
}

void Client::FillPush(wire::PushRequest* push, uint32_t stripes) {
  std::vector<int64_t> keys;
  std::vector<float> values;
  for (uint32_t stripe = 0; stripes >> stripe != 0; ++stripe) {
    if ((stripes >> stripe & 1) == 0) continue;
    keys.push_back(work_.Key(process_->worker, stripe));
    values.push_back(-1);  // SGD subtracts
    values.push_back(static_cast<float>(-Workload::Mark(process_->worker, next())));
  }
  wire::PushItem& item = push->items.emplace_back();
  item.variable = kTable;
  item.selection = wire::Selection::KEYS;
  item.ids = Payload::Copy(keys.data(), keys.size() * sizeof(int64_t));
  item.values = Payload::Copy(values.data(), values.size() * sizeof(float));
}

absl::Status Client::Step() {
  const Deadline deadline = Deadline::In(kCallDeadline);
  if (identity_.synchronous()) return Contribute(deadline);
  if (network_.options().rows_move()) return PushThenPull(deadline);
  RETURN_IF_ERROR(order_.TakeTurn(deadline));
  const int64_t step = clock_.Next();
  std::vector<Exchange*> exchanges;
  for (size_t slot = 0; slot < exchanges_.size(); ++slot) {
    if (Prepare(&exchanges_[slot], slot, step)) exchanges.push_back(&exchanges_[slot]);
  }
  return Send(exchanges, "", deadline);
}

absl::Status Client::Send(absl::Span<Exchange* const> exchanges, absl::string_view position,
                          Deadline deadline) {
  absl::Status status = order_.Number(exchanges, &position);
  if (status.ok()) {
    status = fan_out_.Run(
        exchanges, /*finish_all=*/true, deadline,
        [&](Exchange& exchange) -> absl::Status {
          const bool pushed = exchange.call.kind != CallKind::kPull;
          if (pushed && !order_.Answered(exchange)) {
            return absl::AbortedError("the server was restarted while it answered");
          }
          if (!pushed) exchange.session->Learn(exchange.call.reply.pull.state);
          return absl::OkStatus();
        },
        &retries_);
    order_.Settle(exchanges, status);
  }
  order_.EndTurn();
  if (status.ok()) ++item_;
  return status;
}

absl::Status Client::Call(
    size_t slot, absl::string_view method, Deadline deadline,
    absl::FunctionRef<void(wire::ParameterServerIf&, const wire::Caller&)> body) {
  return fan_out_.Call(sessions_[slot], method, kRpcTimeout, kPsWait, deadline, body, &retries_);
}

absl::Status Client::EndSteps() {
  clock_.End();
  const Deadline deadline = Deadline::In(kCallDeadline);
  return ForEachServer(sessions_.Live(), [&](size_t slot) {
    return Call(slot, "pull", deadline,
                [](wire::ParameterServerIf& service, const wire::Caller& caller) {
                  wire::PullRequest request;
                  request.caller = caller;
                  request.step = -1;
                  wire::PullReply reply;
                  service.pull(reply, request);
                });
  });
}

absl::Status Client::Leave() {
  const Deadline deadline = Deadline::In(kCallDeadline);
  return ForEachServer(sessions_.Live(), [&](size_t slot) {
    wire::ServerState state;
    RETURN_IF_ERROR(Call(slot, "leave", deadline,
                         [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
                           service.leave(state, caller);
                         }));
    sessions_[slot].Learn(state);
    return absl::OkStatus();
  });
}

// As PsClientImpl::HeartbeatLoop: until a server that joined has something of this worker durably
// there is no position that it has, too.
absl::Status Client::Beat(size_t slot) {
  ServerSession& session = sessions_[slot];
  if (session.left()) return absl::OkStatus();
  wire::ServerState state;
  const auto call = [&](absl::string_view method, auto body) {
    const absl::Status status =
        fan_out_.Call(session, method, kHeartbeatTimeout, absl::ZeroDuration(),
                      Deadline::In(kHeartbeatTimeout), body, &retries_);
    if (status.ok()) session.Learn(state);
    return status;
  };
  absl::Status status =
      call("heartbeat", [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
        service.heartbeat(state, caller);
      });
  if (status.ok()) membership_.Heard(state);
  if (ReasonOf(status) == wire::ErrorReason::FENCED && !session.left()) flags_.fenced.store(true);
  if (!status.ok() || !session.joined() || session.last_part() == 0) return status;
  if (have_position_.contains(session.index())) return status;
  const absl::Status flushed =
      call("flush", [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
        service.flush(state, caller);
      });
  if (flushed.ok() && state.durable > 0) have_position_.insert(session.index());
  return status;
}

}  // namespace cairn::simulator
