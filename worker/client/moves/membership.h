// Keeps a client's list of servers current while servers join and leave (ps_server/MEMBERS.md).
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
#include "common/variables/variable_spec.h"
#include "thrift/cairn_types.h"
#include "worker/client/delivery/call_lock.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/position.h"
#include "worker/client/delivery/push_order.h"
#include "worker/client/delivery/server_calls.h"
#include "worker/client/delivery/server_session.h"
#include "worker/client/delivery/server_table.h"
#include "worker/client/job_holdings.h"
#include "worker/client/links/server_link.h"
#include "worker/client/plan/data_plan.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once, except the methods of a
// start.
class Membership {
 public:
  // Parts of the client's identity that this class writes; ClientIdentity points to them.
  struct Flags {
    std::atomic<int32_t> most_servers{0};
    std::atomic<bool> fenced{false};
    std::atomic<int64_t> described_timeline{0};
  };

  // All arguments outlive the membership.
  Membership(const ClientIdentity& identity, ReachServer reach, ServerTable& sessions,
             const PushOrder& order, ClientVariableMap& variables, Flags& flags,
             PlanLimits& plan_limits, FanOut& fan_out, ServerCalls& calls)
      : identity_(identity),
        reach_(std::move(reach)),
        sessions_(sessions),
        order_(order),
        variables_(variables),
        flags_(flags),
        plan_limits_(plan_limits),
        fan_out_(fan_out),
        calls_(calls) {}

  // --- A start: one thread calls these before any other method. ---
  // Says hello to ps:0, which grants the incarnation and answers with the other servers and the
  // timeline that they must hold.
  absl::Status SayHelloToFirst(Deadline deadline, wire::HelloReply* reply);
  // Says hello to another server under that incarnation. Returns OK also where the server has left
  // the cluster: its session is then marked as left, and `reply` holds only the last sequence of
  // this worker that the server had.
  absl::Status SayHello(ServerSession& session, Deadline deadline, wire::HelloReply* reply) {
    return HelloTo(session, incarnation_, deadline, reply, /*joins=*/false);
  }
  // Asks ps:0 about a server that does not answer. True: the server has left; its session is marked
  // as left, and `reply` holds the last sequence of this worker that the server had.
  bool AskWhetherLeft(ServerSession& session, Deadline deadline, wire::HelloReply* reply);
  // Input for ChooseResumePoint. `replies`: one for each known server, by index.
  std::vector<ResumeAnswer> Answers(absl::Span<const wire::HelloReply> replies) const;

  int64_t incarnation() const { return incarnation_; }
  // Version of the member list; 0: the cluster file's list.
  int64_t version() const { return version_.load(); }

  // Fetches the member list from ps:0, says hello to new servers, and learns the placement of rows
  // whose servers have left.
  absl::Status Refresh(Deadline deadline);
  // Whether a server's reply reports a newer member list.
  bool IsOlderThan(const wire::ServerState& state) const {
    return state.__isset.members_version && state.members_version > version();
  }
  // Refreshes the list, if ps:0 sends it soon; true where it has changed. A client without
  // heartbeats needs this to tell a server that has left from a server that is down.
  bool Changed(Deadline deadline);
  // OK: the client knows every server that holds rows of `spec`, after a Refresh where one was
  // needed. kUnavailable: a server in the map has left, so a newer map exists.
  absl::Status EnsureServersKnown(const VariableSpec& spec, Deadline deadline);
  // Describes the job on every server, and adopts the newest map of each variable. A client that is
  // no worker forgets the variables that it knows if the job was dropped or restored since its last
  // description.
  absl::StatusOr<JobHoldings> Describe(Deadline deadline);
  // The job's timeline by the last description, for a client that is no worker; 0: unknown.
  int64_t described_timeline() const { return flags_.described_timeline.load(); }

 private:
  absl::Status HelloTo(ServerSession& session, int64_t incarnation, Deadline deadline,
                       wire::HelloReply* reply, bool joins);
  // Whether the job has another timeline than at the last description: its map versions may be
  // lower than those that the client knows.
  bool NoteTimeline(const JobHoldings& holdings);
  // Applies a member list. With `greet` it says hello to new servers; else the caller does.
  absl::Status Take(const wire::Members& members, bool greet, Deadline deadline);
  absl::Status CheckMembers(const wire::Members& members) const;
  absl::Status ApplyExclusively(const wire::Members& members, bool greet, Deadline deadline);
  absl::Status Join(const wire::Member& member, bool greet, Deadline deadline);
  // Learns the placement of rows whose servers have left, from the servers in `staying`.
  absl::Status LearnMaps(absl::Span<const int32_t> staying, Deadline deadline);
  // Whether the client knows every server in the map. False: *unknown is a server that it does not
  // know, or that has left.
  bool Knows(const VariableSpec& spec, int32_t* unknown) const;
  void SetFinalSequence(size_t server, int64_t applied);
  // The worker's last sequence on a server that has left; 0: the server has not left.
  int64_t FinalSequence(size_t server) const;

  const ClientIdentity& identity_;
  const ReachServer reach_;
  ServerTable& sessions_;
  const PushOrder& order_;
  ClientVariableMap& variables_;
  Flags& flags_;
  PlanLimits& plan_limits_;
  FanOut& fan_out_;
  ServerCalls& calls_;
  int64_t incarnation_ = 0;
  int64_t timeline_ = 0;  // granted by ps:0
  std::atomic<int64_t> version_{0};

  CallLock changes_;  // one change at a time
  mutable absl::Mutex mutex_;
  std::vector<int64_t> final_sequences_ ABSL_GUARDED_BY(mutex_);  // by server
};

}  // namespace cairn
