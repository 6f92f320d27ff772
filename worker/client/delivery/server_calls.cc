#include "worker/client/delivery/server_calls.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "common/interruption.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/limits.h"
#include "worker/client/delivery/client_thread.h"
#include "worker/client/delivery/joined_errors.h"

namespace cairn {
namespace {

// Passes an interruption of the thread that waits here to the threads that it waits for, whose
// calls then end.
class InterruptibleJoin {
 public:
  explicit InterruptibleJoin(size_t threads) : running_(threads) {}

  // Called by each thread: runs `body` such that it can be interrupted.
  void Run(absl::FunctionRef<void()> body) {
    {
      const Interruption interruption(
          [](void* flag) { return static_cast<std::atomic<bool>*>(flag)->load(); }, &interrupted_);
      body();
    }
    NoteEnd();
  }
  // Counts a thread as ended. For one that did not start.
  void NoteEnd() {
    absl::MutexLock lock(&mutex_);
    --running_;
    ended_.SignalAll();
  }
  // Returns when `body` has returned in every thread, or soon will because of an interruption.
  void Wait() {
    const Deadline never = Deadline::In(absl::InfiniteDuration());
    absl::MutexLock lock(&mutex_);
    while (running_ > 0 && !interrupted_.load()) {
      ended_.WaitUntil(&mutex_, never);
      interrupted_.store(never.Expired());  // only an interruption makes it so
    }
  }

 private:
  std::atomic<bool> interrupted_ = false;
  absl::Mutex mutex_;
  MonotonicCondVar ended_;
  size_t running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status ServerCalls::ForEach(absl::Span<const int32_t> servers,
                                  absl::FunctionRef<absl::Status(int32_t)> body) {
  std::vector<absl::Status> statuses(servers.size());
  const auto run = [&](size_t i) {
    statuses[i] = body(servers[i]);
    if (sessions_[static_cast<size_t>(servers[i])].departed()) statuses[i] = absl::OkStatus();
  };
  if (sessions_[0].link().in_process() || servers.size() <= 1) {
    for (size_t i = 0; i < servers.size(); ++i) run(i);
    return Join(statuses);
  }
  const bool interruptible = Interruption::LongestWait() < absl::InfiniteDuration();
  InterruptibleJoin join(servers.size());
  std::vector<ClientThread> threads;
  for (size_t i = 0; i < servers.size(); ++i) {
    threads.push_back(StartClientThread([&, i] {
      if (!interruptible) return run(i);
      join.Run([&] { run(i); });
    }));
    if (threads.back() != nullptr) continue;
    run(i);
    join.NoteEnd();
  }
  if (interruptible) join.Wait();
  threads.clear();  // joins them
  return Join(statuses);
}

absl::Status ServerCalls::One(int32_t server, absl::string_view method,
                              absl::Duration attempt_limit, Deadline deadline, Body body) {
  return fan_out_.Call(sessions_[static_cast<size_t>(server)], method, attempt_limit,
                       limits_.ps_wait, deadline,
                       [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
                         body(service, caller, server);
                       });
}

absl::Status ServerCalls::All(absl::Span<const int32_t> servers, absl::string_view method,
                              absl::Duration attempt_limit, Deadline deadline, Body body) {
  return ForEach(
      servers, [&](int32_t server) { return One(server, method, attempt_limit, deadline, body); });
}

absl::Status ServerCalls::Flush(int32_t server, absl::Duration attempt_limit, Deadline deadline,
                                int64_t* durable) {
  wire::ServerState state;
  ServerSession& session = sessions_[static_cast<size_t>(server)];
  absl::Status status = fan_out_.Call(
      session, "flush", attempt_limit, limits_.ps_wait, deadline,
      [&](wire::ParameterServerIf& service, const wire::Caller& caller) {
        service.flush(state, caller);
      },
      /*may_be_slow=*/true);  // takes as long as a snapshot
  if (status.ok()) session.Learn(state);
  if (status.ok() && durable != nullptr) *durable = state.durable;
  return status;
}

absl::StatusOr<wire::Members> ServerCalls::Members(Deadline deadline) {
  wire::Members members;
  RETURN_IF_ERROR(One(0, "members", rpc_timeout(), deadline,
                      [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t) {
                        members = {};
                        service.members(members, caller);
                      }));
  return members;
}

absl::StatusOr<JobHoldings> ServerCalls::Describe(absl::Span<const int32_t> servers,
                                                  Deadline deadline) {
  ASSIGN_OR_RETURN(JobHoldings holdings, DescribeOnce(servers, deadline));
  if (holdings.disagreement.empty()) return holdings;
  // The servers did not answer at the same moment, and a worker may have started the job in
  // between: look again.
  return DescribeOnce(servers, deadline);
}

absl::StatusOr<JobHoldings> ServerCalls::DescribeOnce(absl::Span<const int32_t> servers,
                                                      Deadline deadline) {
  std::vector<wire::DescribeReply> replies(sessions_.size());
  RETURN_IF_ERROR(
      All(servers, "describe", rpc_timeout(), deadline,
          [&](wire::ParameterServerIf& service, const wire::Caller& caller, int32_t server) {
            replies[server] = {};
            wire::DescribeRequest request;
            request.caller = caller;
            service.describe(replies[server], request);
          }));
  std::vector<DescribedServer> described;
  for (const int32_t server : servers) {
    const auto s = static_cast<size_t>(server);
    if (sessions_[s].departed()) continue;  // it left after the call
    described.push_back({server, sessions_[s].name(), &replies[s]});
  }
  // One above the highest server index that a map may name.
  const int32_t most = std::max(static_cast<int32_t>(sessions_.size()), kMaxServers);
  return CombineHoldings(identity_.job, described, most);
}

}  // namespace cairn
