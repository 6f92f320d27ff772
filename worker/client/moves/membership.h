// The servers that a client knows, as they come and go while it lives (ps_server/MEMBERS.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "common/variables/variable_spec.h"
#include "thrift/cairn_types.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/position.h"
#include "worker/client/delivery/push_order.h"
#include "worker/client/delivery/server_calls.h"
#include "worker/client/delivery/server_session.h"
#include "worker/client/delivery/server_table.h"
#include "worker/client/job_holdings.h"
#include "worker/client/links/server_link.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once, but those of a start.
class Membership {
 public:
  // What it writes of the client's identity, whose pointers to these are.
  struct Flags {
    std::atomic<int32_t> most_servers{0};
    std::atomic<bool> fenced{false};
  };

  // All outlive this.
  Membership(const ClientIdentity& identity, ReachServer reach, ServerTable& sessions,
             const PushOrder& order, ClientVariableMap& variables, Flags& flags, FanOut& fan_out,
             ServerCalls& calls)
      : identity_(identity),
        reach_(std::move(reach)),
        sessions_(sessions),
        order_(order),
        variables_(variables),
        flags_(flags),
        fan_out_(fan_out),
        calls_(calls) {}

  // --- A start, from one thread and before anything else. ---
  // Greets ps:0, which grants the incarnation, says who the others are, and which life of the job
  // they are to hold.
  absl::Status GreetFirst(Deadline deadline, wire::HelloReply* reply);
  // The others, by that incarnation. OK also where the server has left meanwhile: its session says
  // so, and all that is in `reply` is how far this worker was there.
  absl::Status Greet(ServerSession& session, Deadline deadline, wire::HelloReply* reply) {
    return HelloTo(session, incarnation_, deadline, reply, /*joins=*/false);
  }
  // Asks ps:0 about a server that does not answer: where it has left, the session is told,
  // and `reply` says how far this worker was there.
  bool HasLeftUnheard(ServerSession& session, Deadline deadline, wire::HelloReply* reply);
  // For ChooseResumePoint. `replies`: by server, of all that are known.
  std::vector<ResumeAnswer> Answers(absl::Span<const wire::HelloReply> replies) const;

  int64_t incarnation() const { return incarnation_; }
  // Of what ps:0 has said; 0: nothing that differs from the cluster file.
  int64_t version() const { return version_.load(); }

  // Asks ps:0 which servers there are: says hello to those that have come, and learns who has the
  // rows of those that have gone.
  absl::Status Refresh(Deadline deadline);
  // The same where a server's answer says that there is something new.
  void Heard(const wire::ServerState& state);
  // Whether they differ from what was known: to a client without heartbeats a server that has left
  // is one that is gone.
  bool Changed(Deadline deadline);
  // OK: every server that has a part of it is known; if need be after Refresh. kUnavailable: one
  // has left, so that there is a newer map.
  absl::Status KnowServersOf(const VariableSpec& spec, Deadline deadline);
  // What the servers hold; the client goes by these maps from then on.
  absl::StatusOr<JobHoldings> Describe(Deadline deadline);

 private:
  absl::Status HelloTo(ServerSession& session, int64_t incarnation, Deadline deadline,
                       wire::HelloReply* reply, bool joins);
  // `greet`: says hello to those that have come; else the caller does.
  absl::Status Take(const wire::Members& members, bool greet, Deadline deadline);
  absl::Status TakeInTurn(const wire::Members& members, bool greet, Deadline deadline);
  absl::Status Join(const wire::Member& member, bool greet, Deadline deadline);
  // Learns who has the rows of servers that have gone.
  absl::Status LearnMaps(absl::Span<const int32_t> staying, Deadline deadline);
  // Else *unknown is one that is not.
  bool Knows(const VariableSpec& spec, int32_t* unknown) const;
  void SetLastWord(size_t server, int64_t applied);
  // The worker's last sequence on a server that has left; 0: it has not.
  int64_t LastWord(size_t server) const;

  const ClientIdentity& identity_;
  const ReachServer reach_;
  ServerTable& sessions_;
  const PushOrder& order_;
  ClientVariableMap& variables_;
  Flags& flags_;
  FanOut& fan_out_;
  ServerCalls& calls_;
  int64_t incarnation_ = 0;
  int64_t timeline_ = 0;  // that ps:0 answered
  std::atomic<int64_t> version_{0};

  mutable absl::Mutex mutex_;
  bool changing_ ABSL_GUARDED_BY(mutex_) = false;  // one change at a time
  MonotonicCondVar changed_;
  std::vector<int64_t> last_words_ ABSL_GUARDED_BY(mutex_);  // by server
};

}  // namespace cairn
