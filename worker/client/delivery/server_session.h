// A client's state for one server: its link, boot id, acknowledged and retained pushes, and whether
// it is down.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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

// Identifies the client; the same for all servers.
struct ClientIdentity {
  std::string job;
  std::string task;    // "worker:0", for messages
  std::string origin;  // "host/1234"
  int64_t start = 0;   // HelloRequest.start
  int32_t worker = -1;
  int32_t server_count = 0;  // in the cluster file
  // One above the highest server index where servers join and leave, 0 before that is known. Null:
  // the set of servers is fixed.
  const std::atomic<int32_t>* most_servers = nullptr;
  // Set once a server has fenced this process: waiting calls then fail. Null: calls do not check.
  const std::atomic<bool>* fenced = nullptr;
  // The job's timeline by the last description, of a client that is no worker; 0: unknown. Null: a
  // test without descriptions.
  const std::atomic<int64_t>* described_timeline = nullptr;
  absl::Duration ps_wait;
  Retention* retention = nullptr;  // shared by all sessions; null: pushes are not retained
  Consistency consistency;
  int32_t expected_workers = 0;
  StepClock* clock = nullptr;  // shared by all sessions; null: no training steps
  StepBook* steps = nullptr;   // shared by all sessions; null: not a synchronous job

  bool sequenced() const { return worker >= 0; }
  // Caller.timeline; 0: none.
  int64_t timeline_of_maps() const {
    return sequenced() || described_timeline == nullptr ? 0 : described_timeline->load();
  }
  bool synchronous() const { return steps != nullptr; }
};

// The error of calls after another call found the client fenced.
absl::Status FencedError(const std::string& task);

// What the caller must do after an attempt.
enum class RetryDecision {
  kDone,
  kAgain,       // retry at once: the session was renewed, retained pushes were replayed
  kAgainLater,  // retry after a pause, while time is left
  kFail,        // outcome.status is the error
};

// The state of one server. The call that finds the server restarted says hello again and replays
// every retained push that the server lacks; all other calls wait for that.
//
// Thread safety: every method may be called from several threads at once, except Begin,
// PushAnswered, NoPart and ForgetPushes, which the thread that holds the PushOrder calls.
class ServerSession {
 public:
  // `identity` outlives the session. `name`: for example "ps:1 (127.0.0.1:7002)".
  ServerSession(int32_t index, std::string name, std::unique_ptr<ServerLink> link,
                const ClientIdentity* identity);

  int32_t index() const { return index_; }
  const std::string& name() const { return name_; }
  ServerLink& link() { return *link_; }

  // Makes one attempt of hello, and checks the server's version and index. `incarnation`: 0 asks
  // ps:0 for a new one. `timeline`: HelloRequest.timeline. `joins`: the server has just joined and
  // is behind the job's step clock, so its answer does not raise the client's.
  Outcome Hello(int64_t incarnation, int64_t timeline, Deadline deadline, wire::HelloReply* reply,
                bool joins = false);
  // Sets what later calls carry, after the first hello.
  void Begin(const wire::HelloReply& reply, int64_t incarnation, int64_t last_part,
             int64_t through);

  // Sets all fields of `caller`; returns the boot id in it. Before Begin the caller names no
  // worker.
  int64_t FillCaller(wire::Caller* caller) const;

  // Under sync: adds the step decisions that this server lacks to a contribution, and those and the
  // announced step to a pull for call->step.
  void FillSteps(DataCall* call) const;
  // The last closed step, and the last durably closed step, on this server.
  int64_t closed_step() const { return closed_step_.load(std::memory_order_relaxed); }
  int64_t durable_step() const { return durable_step_.load(std::memory_order_relaxed); }

  // --- Pushes to this server. ---
  // The last sequence of an earlier start that the server had at hello.
  int64_t had_at_start() const { return had_at_start_.load(std::memory_order_relaxed); }
  int64_t last_part() const { return last_part_.load(std::memory_order_relaxed); }
  // Records that boot `boot_id` of the server has applied its part, as call.reply says. Retains a
  // copy until the part is durable. False where the session was renewed in the meantime: the boot
  // that answered has lost its memory, so send the part again.
  bool PushAnswered(const DataCall& call, int64_t boot_id);
  void NoPart(int64_t sequence);  // had no part, or refused it: `through` covers it
  // Call before the job is dropped, so that servers that dropped it do not count as having lost
  // pushes.
  void ForgetPushes();
  // Call with the state in any reply: frees parts that are durable by now.
  void Learn(const wire::ServerState& state);
  // Bytes retained for this server, and when its oldest part was acknowledged.
  int64_t retained_bytes() const;
  absl::Time retained_since() const;

  // Decides how to continue after an attempt that carried `boot_id`. Says hello again to a server
  // that was restarted or that ended this worker's lease. Logs when the server goes down or comes
  // back, and whom a call waits for.
  //   repeatable    running the call twice does no harm
  //   slow_is_down  a server that missed the attempt's limit counts as down
  RetryDecision ClassifyOutcome(Outcome* outcome, bool repeatable, int64_t boot_id,
                                Deadline deadline, bool slow_is_down = true);
  // The error of a call that gave up on this server, after its last attempt's `outcome`.
  absl::Status GiveUpError(const Outcome& outcome, bool deadline_passed) const;

  // The server joined a running cluster.
  void SetJoined() { joined_.store(true, std::memory_order_relaxed); }
  bool joined() const { return joined_.load(std::memory_order_relaxed); }

  // The server has left the cluster, and other servers own its rows. Calls fail with MOVED from now
  // on; the server is never called again.
  void SetDeparted();
  bool departed() const { return departed_.load(std::memory_order_acquire); }

  // Whether the server is down: its last call was not answered.
  bool down() const { return down_.load(std::memory_order_relaxed); }
  // Whether another server answered at this server's address when it was last called.
  bool replaced() const { return replaced_.load(std::memory_order_relaxed); }

 private:
  void PublishLedger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_mutex_);
  std::vector<RetainedPart> TakeDurable(int64_t durable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_mutex_);
  void NoteAnswer();
  void NoteDown(const absl::Status& error);
  RetryDecision Renew(Outcome* outcome, int64_t stale_boot_id, Deadline deadline);
  RetryDecision HelloAgain(Outcome* outcome, Deadline deadline);
  // Removes from a replayed `call`, which the server refused with MOVED, the rows that have moved
  // away.
  absl::Status RemoveMovedRows(const absl::Status& moved, DataCall* call) const;
  RetryDecision Replay(const ReplayPlan& plan, const wire::HelloReply& hello, Outcome* outcome,
                       Deadline deadline);
  // *last_sent_step: the last step whose decision this boot of the server knows; raised.
  Outcome Resend(const RetainedPart& part, int64_t boot_id, Deadline deadline,
                 int64_t* last_sent_step);
  void NoteSteps(const wire::ServerState& state);
  RetryDecision ClassifyRenewal(Outcome* outcome);
  absl::Status CheckHello(const wire::HelloReply& reply);
  // kUnavailable: names the other server that answers at this address. Logged once.
  absl::Status OtherServer(const wire::HelloReply& reply);
  absl::Status Fenced(const absl::Status& error) const;
  absl::Status PushesLost(const ReplayPlan& plan, const wire::HelloReply& hello) const;
  // Checks that a restarted server still has this client's timeline of the job.
  absl::Status CheckTimeline(const wire::HelloReply& hello) const;

  const int32_t index_;
  const std::string name_;
  const std::unique_ptr<ServerLink> link_;
  const ClientIdentity& identity_;

  std::atomic<int64_t> incarnation_{0};
  std::atomic<int64_t> timeline_{0};
  // Copies of the ledger's values, for readers without its lock.
  std::atomic<int64_t> boot_id_{0};
  std::atomic<int64_t> had_at_start_{0};
  std::atomic<int64_t> last_part_{0};
  std::atomic<int64_t> through_{0};
  std::atomic<int64_t> oldest_{0};
  std::atomic<int64_t> closed_step_{0};
  std::atomic<int64_t> durable_step_{0};

  std::atomic<bool> greeted_{false};
  std::atomic<bool> down_{false};
  std::atomic<bool> replaced_{false};
  std::atomic<bool> logged_other_server_{false};  // since its last answer
  std::atomic<bool> joined_{false};
  std::atomic<bool> departed_{false};

  mutable absl::Mutex push_mutex_;  // guards renewals, acknowledgements and releases
  MonotonicCondVar renewed_;        // signaled when ledger_.renewing() ends
  absl::Time renewing_since_ ABSL_GUARDED_BY(push_mutex_);
  PushLedger ledger_ ABSL_GUARDED_BY(push_mutex_);

  mutable absl::Mutex mutex_;
  absl::Time down_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
