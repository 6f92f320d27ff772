#include "worker/client/impl/client_impl.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/host_name.h"
#include "common/log.h"
#include "common/start_number.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "thrift/security/client_security.h"
#include "worker/client/delivery/position.h"

namespace cairn {
namespace {

// A heartbeat is answered at once or is of no use; also bounds the time that a destructor waits
// for one.
constexpr absl::Duration kHeartbeatTimeout = absl::Seconds(1);
constexpr absl::Duration kShortestHeartbeatTimeout = absl::Milliseconds(100);
// The same for an early epoch; one that takes longer goes on without being waited for.
constexpr absl::Duration kEarlyEpochTimeout = absl::Seconds(5);

std::string Origin() {
  return absl::StrCat(HostName().substr(0, kMaxOriginBytes - 32), "/", getpid());
}

ClientIdentity IdentityOf(const ClientOptions& options, int32_t server_count,
                          const Membership::Flags& flags, Retention* retention, StepClock* clock,
                          StepBook* steps) {
  const bool synchronous =
      options.worker >= 0 && options.consistency.mode == ConsistencyMode::kSync;
  return {.job = options.job,
          .task = options.task,
          .origin = Origin(),
          .start = DrawStartNumber(),
          .worker = options.worker,
          .server_count = server_count,
          .most_servers = &flags.most_servers,
          .fenced = &flags.fenced,
          .ps_wait = options.ps_wait,
          .retention = options.worker >= 0 && options.retained_bytes > 0 ? retention : nullptr,
          .consistency = options.consistency,
          .expected_workers = options.expected_workers,
          .clock = clock,
          .steps = synchronous ? steps : nullptr};
}

absl::Status CheckOptions(const ClientOptions& options, size_t server_count) {
  if (server_count == 0) {
    return absl::InvalidArgumentError("client: no parameter servers given");
  }
  if (options.job.empty()) return absl::InvalidArgumentError("client: the job has no name");
  if (options.retained_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("client: retained_bytes is ", options.retained_bytes, "; 0 or more allowed"));
  }
  if (options.max_message_bytes < kLowestMaxMessageBytes ||
      options.max_message_bytes > kHighestMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("client: max_message_bytes is ", options.max_message_bytes, "; ",
                     kLowestMaxMessageBytes, " … ", kHighestMaxMessageBytes, " allowed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PsClient>> PsClient::Connect(const ClientOptions& options,
                                                            Deadline deadline) {
  RETURN_IF_ERROR(CheckOptions(options, options.servers.size()));
  ASSIGN_OR_RETURN(const std::shared_ptr<ClientSecurity> security,
                   ClientSecurity::Load(options.security));
  const auto reach = [options, security](
                         int32_t server,
                         const std::string& other) -> absl::StatusOr<PsClientImpl::Reached> {
    const std::string& address =
        other.empty() ? options.servers[static_cast<size_t>(server)] : other;
    const std::string name = absl::StrCat("ps:", server, " (", address, ")");
    return PsClientImpl::Reached{name, RemoteLink(name, address, options.max_message_bytes,
                                                  security, options.local_transport)};
  };
  return PsClientImpl::Start(options, static_cast<int32_t>(options.servers.size()), reach,
                             deadline);
}

absl::StatusOr<std::unique_ptr<PsClient>> PsClient::ConnectInProcess(
    const ClientOptions& options, std::vector<wire::ParameterServerIf*> servers,
    Deadline deadline) {
  RETURN_IF_ERROR(CheckOptions(options, servers.size()));
  for (size_t i = 0; i < servers.size(); ++i) {
    if (servers[i] != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat("client: server ps:", i, " is null"));
  }
  const auto reach = [servers](int32_t server,
                               const std::string&) -> absl::StatusOr<PsClientImpl::Reached> {
    if (static_cast<size_t>(server) >= servers.size()) {
      return absl::UnimplementedError(absl::StrCat("ps:", server,
                                                   " has joined, and this client reaches the ",
                                                   servers.size(), " servers of its process only"));
    }
    const std::string name = absl::StrCat("ps:", server, " (in process)");
    return PsClientImpl::Reached{name, InProcessLink(name, servers[static_cast<size_t>(server)])};
  };
  return PsClientImpl::Start(options, static_cast<int32_t>(servers.size()), reach, deadline);
}

absl::StatusOr<std::unique_ptr<PsClient>> PsClientImpl::Start(const ClientOptions& options,
                                                              int32_t server_count,
                                                              ReachServer reach,
                                                              Deadline deadline) {
  std::vector<Reached> reached;
  for (int32_t server = 0; server < server_count; ++server) {
    ASSIGN_OR_RETURN(reached.emplace_back(), reach(server, ""));
  }
  std::unique_ptr<PsClientImpl> client(
      new PsClientImpl(options, std::move(reached), std::move(reach)));
  RETURN_IF_ERROR(client->SayHello(deadline));
  client->StartHeartbeats();
  return client;
}

PsClientImpl::PsClientImpl(const ClientOptions& options, std::vector<Reached> servers,
                           ReachServer reach)
    : options_(options),
      retention_(options.retained_bytes),
      identity_(IdentityOf(options, static_cast<int32_t>(servers.size()), flags_, &retention_,
                           &clock_, &steps_)),
      reach_(std::move(reach)),
      sessions_([&] {
        std::vector<std::unique_ptr<ServerSession>> sessions;
        for (Reached& server : servers) {
          sessions.push_back(std::make_unique<ServerSession>(static_cast<int32_t>(sessions.size()),
                                                             std::move(server.name),
                                                             std::move(server.link), &identity_));
        }
        return sessions;
      }()),
      retry_limits_{options.ps_wait, options.rpc_timeout},
      plan_limits_{options.max_message_bytes, kMaxItemsPerCall, kMaxIdsPerCall},
      plans_(sessions_, plan_limits_),
      membership_(identity_, {options.ps_wait, options.rpc_timeout}, sessions_, order_, variables_,
                  flags_, *this),
      placement_(options.placement),
      order_(sessions_) {}

PsClientImpl::~PsClientImpl() {
  early_epochs_.Stop();
  StopHeartbeats();
}

absl::Status PsClientImpl::CheckHoldings(Deadline deadline,
                                         std::vector<wire::HelloReply>& replies) {
  // The last look waits for as long as any call.
  for (absl::Duration look = absl::Seconds(2);; look *= 2) {
    const bool last = look >= options_.ps_wait;
    const Deadline until = last ? deadline : Deadline::Earlier(deadline, Deadline::In(look));
    const absl::StatusOr<JobHoldings> holdings = DescribeOn(sessions_.Live(), until);
    if (holdings.ok()) return CheckAgreement(*holdings);
    const bool silent =
        absl::IsUnavailable(holdings.status()) || absl::IsDeadlineExceeded(holdings.status());
    if (!silent || last || deadline.Expired()) return holdings.status();
    for (const int32_t server : sessions_.Live()) {
      const auto s = static_cast<size_t>(server);
      membership_.HasLeftUnheard(sessions_[s], deadline, &replies[s]);
    }
  }
}

absl::Status PsClientImpl::SayHello(Deadline deadline, bool dropped) {
  wire::HelloReply first;
  RETURN_IF_ERROR(membership_.GreetFirst(deadline, &first));
  std::vector<wire::HelloReply> replies(sessions_.size());
  // Before the others take over the timeline of ps:0: one that has lost the job would look whole.
  if (identity_.sequenced() && !dropped) RETURN_IF_ERROR(CheckHoldings(deadline, replies));
  if (identity_.synchronous()) steps_.Begin(first.step, first.step - 1);
  CAIRN_CRASH_POINT("worker: hello to ps:0 alone");
  const std::vector<int32_t> servers = sessions_.Live();
  replies[0] = std::move(first);
  RETURN_IF_ERROR(ForEachServer(absl::MakeConstSpan(servers).subspan(1), [&](int32_t server) {
    const auto s = static_cast<size_t>(server);
    return membership_.Greet(sessions_[s], deadline, &replies[s]);
  }));
  for (const wire::HelloReply& reply : replies) {
    if (reply.max_message_bytes > 0) {
      plan_limits_.max_message_bytes =
          std::min(plan_limits_.max_message_bytes, reply.max_message_bytes);
    }
  }
  const ResumePoint point = ChooseResumePoint(membership_.Answers(replies));
  double lease_seconds = replies[0].lease_seconds;
  for (const int32_t server : servers) {
    const auto s = static_cast<size_t>(server);
    if (sessions_[s].left()) continue;
    sessions_[s].Begin(replies[s], membership_.incarnation(), point.last_part[s], point.sequence);
    lease_seconds = std::min(lease_seconds, replies[s].lease_seconds);
  }
  lease_ = absl::Seconds(lease_seconds);
  position_ = point.position;
  order_.Reset(point.sequence, point.position);
  moved_updates_.Begin(point);
  if (identity_.synchronous()) ResumeSteps(point, replies);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ServerSession>> PsClientImpl::Reach(int32_t server,
                                                                   const std::string& address) {
  ASSIGN_OR_RETURN(Reached reached, reach_(server, address));
  return std::make_unique<ServerSession>(server, std::move(reached.name), std::move(reached.link),
                                         &identity_);
}

absl::StatusOr<wire::Members> PsClientImpl::AskMembers(Deadline deadline) {
  wire::Members members;
  RETURN_IF_ERROR(
      CallOne(0, "members", options_.rpc_timeout, deadline,
              [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                members = {};
                service.members(members, caller);
              }));
  return members;
}

absl::Status PsClientImpl::ForEachServer(absl::Span<const int32_t> servers,
                                         absl::FunctionRef<absl::Status(int32_t)> body) {
  std::vector<absl::Status> statuses(servers.size());
  const auto run = [&](size_t i) {
    statuses[i] = body(servers[i]);
    if (sessions_[static_cast<size_t>(servers[i])].left()) statuses[i] = absl::OkStatus();
  };
  if (sessions_[0].link().in_process() || servers.size() <= 1) {
    for (size_t i = 0; i < servers.size(); ++i) run(i);
    return Join(statuses);
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < servers.size(); ++i) threads.emplace_back([&run, i] { run(i); });
  for (std::thread& thread : threads) thread.join();
  return Join(statuses);
}

absl::Status PsClientImpl::CallOne(int32_t server, absl::string_view method,
                                   absl::Duration attempt_limit, Deadline deadline,
                                   ServiceCall body) {
  int64_t retries = 0;
  absl::Status status = fan_out_.Call(
      sessions_[static_cast<size_t>(server)], method, attempt_limit, options_.ps_wait, deadline,
      [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
        body(service, caller, server);
      },
      &retries);
  CountRetries(retries);
  return status;
}

absl::Status PsClientImpl::CallAll(absl::Span<const int32_t> servers, absl::string_view method,
                                   absl::Duration attempt_limit, Deadline deadline,
                                   ServiceCall body) {
  return ForEachServer(servers, [&](int32_t server) {
    return CallOne(server, method, attempt_limit, deadline, body);
  });
}

absl::Status PsClientImpl::Flush(Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("flush", deadline));
  return ForEachServer(sessions_.Live(), [&](int32_t server) {
    return FlushServer(server, deadline.Remaining(), deadline);
  });
}

absl::Status PsClientImpl::FlushServer(int32_t server, absl::Duration attempt_limit,
                                       Deadline deadline, int64_t* durable) {
  wire::ServerState state;
  int64_t retries = 0;
  ServerSession& session = sessions_[static_cast<size_t>(server)];
  absl::Status status = fan_out_.Call(
      session, "flush", attempt_limit, options_.ps_wait, deadline,
      [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
        service.flush(state, caller);
      },
      &retries, /*may_be_slow=*/true);  // it takes as long as an epoch
  CountRetries(retries);
  if (status.ok()) session.Learn(state);
  if (status.ok() && durable != nullptr) *durable = state.durable;
  return status;
}

void PsClientImpl::AskForEarlyEpochs() {
  // Whoever needs the room waits for it, and tells where it does not come.
  ForEachServer(sessions_.Live(), [&](int32_t server) {
    if (sessions_[static_cast<size_t>(server)].retained_bytes() == 0) return absl::OkStatus();
    return FlushServer(server, kEarlyEpochTimeout, Deadline::In(kEarlyEpochTimeout));
  }).IgnoreError();
}

absl::Status PsClientImpl::Leave(Deadline deadline) {
  if (!identity_.sequenced()) {
    RETURN_IF_ERROR(Flush(deadline));
    left_ = true;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckOpen("leave", deadline));
  RETURN_IF_ERROR(order_.TakeTurn(deadline));  // after the push that is under way
  early_epochs_.Stop();  // one that came after `leave` would look like a worker that is back
  CAIRN_CRASH_POINT("worker: before it leaves");
  absl::Status status = ForEachServer(sessions_.Live(), [&](int32_t server) {
    wire::ServerState state;
    RETURN_IF_ERROR(CallOne(server, "leave", deadline.Remaining(), deadline,
                            [&](wire::ParameterServerIf& service, const wire::Caller& caller,
                                int32_t) { service.leave(state, caller); }));
    sessions_[static_cast<size_t>(server)].Learn(state);
    CAIRN_CRASH_POINT("worker: has left one server");
    return absl::OkStatus();
  });
  if (status.ok()) left_ = true;
  order_.EndTurn();
  if (status.ok()) StopHeartbeats();
  return status;
}

absl::Status PsClientImpl::DropJob(Deadline deadline) {
  RETURN_IF_ERROR(CheckOpen("drop_job", deadline));
  RETURN_IF_ERROR(order_.TakeTurn(deadline));
  absl::Status status;
  {
    // A heartbeat between forgetting and hello would be one of an unknown worker.
    absl::MutexLock lock(&heartbeat_mutex_);
    const std::vector<int32_t> servers = sessions_.Live();
    sessions_.ForEachLive([](ServerSession& session) { session.ForgetPushes(); });
    status = CallAll(servers, "drop_job", deadline.Remaining(), deadline,
                     [](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                       wire::ServerState state;
                       service.drop_job(state, caller);
                     });
    CAIRN_CRASH_POINT("worker: job dropped");
    if (status.ok()) {
      variables_.Clear();
      status = SayHello(deadline, /*dropped=*/true);
    }
  }
  if (status.ok() && options_.placement == nullptr) {
    absl::MutexLock lock(&create_mutex_);
    placement_ = nullptr;  // from the first server on
  }
  order_.EndTurn();
  return status;
}

ClientCounters PsClientImpl::counters() const {
  return {.bytes_pushed = bytes_pushed_.load(std::memory_order_relaxed),
          .bytes_pulled = bytes_pulled_.load(std::memory_order_relaxed),
          .retries = retries_.load(std::memory_order_relaxed),
          .pushes_dropped = pushes_dropped_.load(std::memory_order_relaxed),
          .pushes_late = pushes_late_.load(std::memory_order_relaxed),
          .retained_bytes = retention_.bytes(),
          .retained_bytes_max = retention_.max_bytes(),
          .replayed_pushes = retention_.replayed_pushes(),
          .replayed_bytes = retention_.replayed_bytes(),
          .replay_seconds = absl::ToDoubleSeconds(retention_.replay_time())};
}

void PsClientImpl::StartHeartbeats() {
  if (!identity_.sequenced() || lease_ <= absl::ZeroDuration()) return;
  {
    absl::MutexLock lock(&threads_mutex_);
    beating_ = true;
  }
  sessions_.ForEachLive([this](ServerSession& session) { StartHeartbeat(session); });
}

void PsClientImpl::StartHeartbeat(ServerSession& session) {
  absl::MutexLock lock(&threads_mutex_);
  if (!beating_) return;
  heartbeats_.emplace_back(
      [this, &session, interval = lease_ / 3] { HeartbeatLoop(session, interval); });
}

void PsClientImpl::StopHeartbeats() {
  stop_.Stop();
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&threads_mutex_);
    beating_ = false;
    threads.swap(heartbeats_);
  }
  for (std::thread& thread : threads) thread.join();
}

void PsClientImpl::HeartbeatLoop(ServerSession& session, absl::Duration interval) {
  const absl::Duration timeout = std::clamp(interval, kShortestHeartbeatTimeout, kHeartbeatTimeout);
  // Until it has something of this worker durably there is no position that it has, too.
  bool has_position = !session.joined();
  do {  // at once: one that stops soon after its hello is to be missed too
    const absl::ReaderMutexLock lock(&heartbeat_mutex_);
    const absl::Status status = Beat(session, timeout);
    if (session.left()) return;
    if (!has_position && status.ok() && session.last_part() > 0) {
      int64_t durable = 0;
      FlushServer(session.index(), timeout, Deadline::In(timeout), &durable).IgnoreError();
      has_position = durable > 0;
    }
    // A server that is gone is in the log, and no reason to end; calls wait for it. One that has
    // fenced this process tells every call so.
    if (ReasonOf(status) != wire::ErrorReason::FENCED) continue;
    LOG(ERROR) << status.message();
    flags_.fenced.store(true);
    return;
  } while (!stop_.WaitFor(std::min(interval, absl::Seconds(kHeartbeatSeconds))));
}

wire::WorkerVitals PsClientImpl::Vitals() const {
  wire::WorkerVitals vitals;
  vitals.__set_task(options_.task.substr(0, kMaxTaskTypeBytes));
  const StalenessSummary staleness = staleness_.Summary();
  if (!staleness.histogram.empty()) {
    vitals.__set_staleness_mean(staleness.mean);
    vitals.__set_staleness_max(staleness.max);
  }
  vitals.__set_retained_bytes(retention_.bytes());
  vitals.__isset.servers_gone = true;
  sessions_.ForEachLive([&](const ServerSession& session) {
    if (!session.gone() || vitals.servers_gone.size() >= kMaxGoneServers) return;
    vitals.servers_gone.push_back(session.index());
  });
  if (options_.vitals == nullptr) return vitals;
  const TrainingVitals training = options_.vitals();
  vitals.__set_steps(training.steps);
  vitals.__set_examples(training.examples);
  if (training.loss.has_value()) vitals.__set_loss(*training.loss);
  if (training.share_done.has_value()) vitals.__set_share_done(*training.share_done);
  if (training.seconds_left.has_value()) vitals.__set_seconds_left(*training.seconds_left);
  return vitals;
}

absl::Status PsClientImpl::Beat(ServerSession& session, absl::Duration timeout) {
  int64_t retries = 0;
  wire::ServerState state;
  absl::Status status = fan_out_.Call(
      session, "heartbeat", timeout, absl::ZeroDuration(), Deadline::In(timeout),
      [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
        wire::Caller beating = caller;
        beating.__set_vitals(Vitals());
        service.heartbeat(state, beating);
      },
      &retries);
  if (!status.ok()) return status;
  session.Learn(state);
  membership_.Heard(state);
  return status;
}

}  // namespace cairn
