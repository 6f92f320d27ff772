// What this client knows of one server: its link, its boot id, which pushes it has and which are
// kept for it, and since when it is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/consistency.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "thrift/cairn_types.h"
#include "worker/client/delivery/push_ledger.h"
#include "worker/client/delivery/retention.h"
#include "worker/client/delivery/step_book.h"
#include "worker/client/delivery/step_clock.h"
#include "worker/client/links/server_link.h"

namespace cairn {

// Who this client is; equal for all servers.
struct ClientIdentity {
  std::string job;
  std::string task;    // "worker:0", for messages
  std::string origin;  // "host/1234"
  int64_t start = 0;   // HelloRequest.start
  int32_t worker = -1;
  int32_t server_count = 0;  // of the cluster file
  // Where servers come and go: one above the highest index there is, 0 before that is known. Null:
  // they do not.
  const std::atomic<int32_t>* most_servers = nullptr;
  // Some server has said, to other calls than those that wait, that this process must stop; they
  // need not wait for others. Null: nobody is asked.
  const std::atomic<bool>* fenced = nullptr;
  absl::Duration ps_wait;
  Retention* retention = nullptr;  // shared by all sessions; null: pushes are not retained
  Consistency consistency;
  int32_t expected_workers = 0;
  StepClock* clock = nullptr;  // shared by all sessions; null: takes no training steps
  StepBook* steps = nullptr;   // likewise; of a synchronous job

  bool sequenced() const { return worker >= 0; }
  bool synchronous() const { return steps != nullptr; }
};

// What calls of a client fail with that is fenced in that manner.
absl::Status FencedElsewhere(const std::string& task);

// What a caller does with the outcome of an attempt.
enum class RetryDecision {
  kDone,
  kAgain,       // at once: the session has been renewed, retained pushes are there again
  kAgainLater,  // after a pause, while there is time
  kFail,        // outcome.status says why
};

// A server that was restarted is told the worker's identity again and sent every retained push that
// it does not have, by the call that finds it restarted; all other calls wait for that.
//
// Thread safety: every method may be called from several threads at once, but for Begin,
// PushAnswered, NoPart and ForgetPushes, which the thread that holds the client's push lock calls.
class ServerSession {
 public:
  // `identity` outlives the session. `name` is "ps:1 (127.0.0.1:7002)".
  ServerSession(int32_t index, std::string name, std::unique_ptr<ServerLink> link,
                const ClientIdentity* identity);

  int32_t index() const { return index_; }
  const std::string& name() const { return name_; }
  ServerLink& link() { return *link_; }

  // One attempt of hello, which checks version and place of the server. `incarnation` 0 asks ps:0
  // for a new one. `timeline`: HelloRequest.timeline. `joins`: to a server that has just come,
  // which knows less of the job's clocks than this client: its answer does not raise the client's.
  Outcome Hello(int64_t incarnation, int64_t timeline, Deadline deadline, wire::HelloReply* reply,
                bool joins = false);
  // After the first hello: what later calls carry.
  void Begin(const wire::HelloReply& reply, int64_t incarnation, int64_t last_part,
             int64_t through);

  // Sets all fields of `caller`; returns the boot id in it. Before Begin the caller is nobody.
  int64_t FillCaller(wire::Caller* caller) const;

  // Under sync: what a contribution tells this server of steps; what a pull for call->step
  // announces and asks.
  void FillSteps(DataCall* call) const;
  // The last step closed, and closed durably, on this server.
  int64_t closed_step() const { return closed_step_.load(std::memory_order_relaxed); }
  int64_t durable_step() const { return durable_step_.load(std::memory_order_relaxed); }

  // Pushes, as seen by this server.
  // The last sequence of an earlier start that the server had at this one's hello.
  int64_t had_at_start() const { return had_at_start_.load(std::memory_order_relaxed); }
  int64_t last_part() const { return last_part_.load(std::memory_order_relaxed); }
  // The server of boot `boot_id` has applied its part, as call.reply says. A copy is retained until
  // it is durable. False where the session has been renewed since: that answer came from a boot
  // whose memory is gone, so send the part again.
  bool PushAnswered(const DataCall& call, int64_t boot_id);
  void NoPart(int64_t sequence);  // had none, or the server refused it: through covers it
  // Before the job is dropped: a server that has forgotten it has lost nothing.
  void ForgetPushes();
  // From any reply: frees what is durable by now.
  void Learn(const wire::ServerState& state);
  // What is kept for this server, and of when its oldest part is.
  int64_t retained_bytes() const;
  absl::Time retained_since() const;

  // Decides about an attempt that carried `boot_id`. `repeatable`: running it twice does no harm.
  // Logs a server's going and coming back, and who others wait for; says hello again to a server
  // that was restarted or that has ended this worker's lease. `slow_is_gone`: a server that has not
  // answered in time is taken for gone.
  RetryDecision ClassifyOutcome(Outcome* outcome, bool repeatable, int64_t boot_id,
                                Deadline deadline, bool slow_is_gone = true);
  // The error of a call that waited in vain for this server, after its last attempt's `outcome`.
  absl::Status GaveUp(const Outcome& outcome, bool deadline_passed) const;

  // It has joined the cluster since it was started.
  void SetJoined() { joined_.store(true, std::memory_order_relaxed); }
  bool joined() const { return joined_.load(std::memory_order_relaxed); }

  // It has left the cluster, and its rows have other owners. Calls fail with MOVED from now on;
  // nothing is sent to it again.
  void SetLeft();
  bool left() const { return left_.load(std::memory_order_acquire); }

  // Whether its last call was not answered.
  bool gone() const { return gone_.load(std::memory_order_relaxed); }

 private:
  void PublishLedger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_mutex_);
  std::vector<RetainedPart> TakeDurable(int64_t durable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_mutex_);
  void NoteAnswer();
  void NoteGone(const absl::Status& error);
  RetryDecision Renew(Outcome* outcome, int64_t stale_boot_id, Deadline deadline);
  RetryDecision HelloAgain(Outcome* outcome, Deadline deadline);
  // `call` was to be sent again, and is refused with MOVED: without the rows that have gone.
  absl::Status LeaveOutMoved(const absl::Status& moved, DataCall* call) const;
  RetryDecision Replay(const ReplayPlan& plan, const wire::HelloReply& hello, Outcome* outcome,
                       Deadline deadline);
  // `told`: the last step whose decision this boot of the server knows; raised.
  Outcome SendAgain(const RetainedPart& part, int64_t boot_id, Deadline deadline, int64_t* told);
  void NoteSteps(const wire::ServerState& state);
  RetryDecision ClassifyRenewal(Outcome* outcome);
  absl::Status CheckHello(const wire::HelloReply& reply) const;
  // kUnavailable: names who answers at this server's address. Logged once.
  absl::Status OtherServer(const wire::HelloReply& reply) const;
  absl::Status Fenced(const absl::Status& error) const;
  absl::Status PushesLost(const ReplayPlan& plan, const wire::HelloReply& hello) const;
  // A server that was restarted may have another life of the job.
  absl::Status CheckLife(const wire::HelloReply& hello) const;

  const int32_t index_;
  const std::string name_;
  const std::unique_ptr<ServerLink> link_;
  const ClientIdentity& identity_;

  std::atomic<int64_t> incarnation_{0};
  std::atomic<int64_t> timeline_{0};
  // The ledger's, for readers without its lock.
  std::atomic<int64_t> boot_id_{0};
  std::atomic<int64_t> had_at_start_{0};
  std::atomic<int64_t> last_part_{0};
  std::atomic<int64_t> through_{0};
  std::atomic<int64_t> oldest_{0};
  std::atomic<int64_t> closed_step_{0};
  std::atomic<int64_t> durable_step_{0};

  std::atomic<bool> greeted_{false};
  std::atomic<bool> gone_{false};
  mutable std::atomic<bool> said_other_{false};  // since it was last there
  std::atomic<bool> joined_{false};
  std::atomic<bool> left_{false};

  mutable absl::Mutex push_mutex_;  // orders renewals, acknowledgements and what is durable
  MonotonicCondVar renewed_;        // ledger_.renewing() has ended
  absl::Time renewing_since_ ABSL_GUARDED_BY(push_mutex_);
  PushLedger ledger_ ABSL_GUARDED_BY(push_mutex_);

  mutable absl::Mutex mutex_;
  absl::Time gone_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
