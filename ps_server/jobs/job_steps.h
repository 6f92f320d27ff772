// The steps of one synchronous job on one server: the contributions that wait, the workers that
// others wait for, and which step closes next. ps_server/SYNC.md has the protocol. This class
// decides; ps_server/calls/step_closing.h stores decisions and applies the means of steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/jobs/cohort.h"
#include "ps_server/jobs/session.h"
#include "ps_server/jobs/sync_steps.h"
#include "thrift/cairn_types.h"

namespace cairn {

// A server's part in the synchronous jobs that it hosts.
struct StepRole {
  bool coordinator = true;          // ps:0, which decides what counts for each step
  bool applied_is_durable = false;  // durability off
};

// Thread safety: every method may be called from several threads at once, but Load before all
// others.
class JobSteps {
 public:
  // A call that waits for a step; FillWhy and CountWaits report it.
  struct Waiter {
    int32_t worker = -1;
    int64_t step = 0;      // the step that it begins; 0: it waits for its own contributions
    absl::Duration since;  // on the monotonic clock
  };
  using Waiters = std::list<Waiter>;

  // `cohort` must outlive this object.
  JobSteps(absl::string_view job, Cohort* cohort, const StepRole& role)
      : job_(job), cohort_(*cohort), role_(role) {}

  // Restores the stored state. `closed` is the record of kStepWorker.
  void Load(const WorkerRecord& closed, std::vector<DecisionRecord> decisions);
  // Called when a synchronous worker says hello. The first such call makes the step after `after`
  // the first step of this server. The caller must make the returned session durable
  // (Session::durable_incarnation) before it replies: after a restart another worker might name a
  // later first step.
  std::shared_ptr<Session> Begin(int64_t after);
  // Whether the job is, or was, synchronous.
  bool active() const { return active_.load(std::memory_order_acquire); }
  const StepRole& role() const { return role_; }
  const std::string& job() const { return job_; }
  Cohort& cohort() const { return cohort_; }

  int64_t open() const;
  int64_t closed() const;
  int64_t decided() const;
  void Fill(wire::ServerState& state) const;
  // The last step that began here for rows of `variable`: its decision is known, or a contribution
  // with a part of the variable is pending. At least closed().
  int64_t LastBegun(absl::string_view variable) const;

  // Held from the making of a decision until the decision is stored and learned, by everything that
  // may change what a decision names, and while the job's records are deleted from the disk.
  absl::Mutex& deciding() ABSL_LOCK_RETURNED(deciding_) { return deciding_; }
  // Holds deciding(). `waits` lists the call while another one writes a decision.
  TracedLock LockDecisions(WaitBoard& waits) {
    return TracedLock(&deciding_, &waits, "epoch", "another call to write a decision");
  }

  // A new start of `worker` said hello: no further decision names contributions of its earlier
  // starts.
  void Restart(int32_t worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(deciding_);
  // On the coordinator: the last sequence of `worker` that a decision names; otherwise 0.
  int64_t LastNamed(int32_t worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(deciding_);
  // Like SyncSteps::Add.
  SyncSteps::Added Add(PendingContribution contribution, bool replaces)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(deciding_);
  // On the coordinator: the decision for the open step, if the step is below `below` and can be
  // decided. `quorum`: of the cohort, read before deciding() was locked.
  std::optional<DecisionRecord> NextDecision(absl::Span<const QuorumMember> quorum,
                                             int64_t below) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(deciding_);
  void Learn(DecisionRecord decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(deciding_);
  // The job's records are gone from the disk: no decision may be stored or deleted any more.
  void EndDecisions() ABSL_EXCLUSIVE_LOCKS_REQUIRED(deciding_) { ended_ = true; }
  bool ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(deciding_) { return ended_; }
  // Forgets the decisions that no worker needs any more. `all_durable_step`: durable on all
  // servers. Returns the last step whose decision should be deleted from the disk now; nullopt:
  // none.
  std::optional<int64_t> Forget(int64_t all_durable_step);

  // The next step to close, which this thread must close, followed by EndClosing in any case.
  // nullopt: no step can be closed, or another thread is closing one and will look again.
  // `missing`: why a contribution that a decision names is not here.
  std::optional<SyncSteps::Closing> BeginClosing(
      absl::FunctionRef<SyncSteps::Missing(const NamedContribution&)> missing);
  // Marks the step as closed, in the sessions of its contributors too. `session_of`: nullptr for a
  // worker without a session. Returns how many contributions were dropped.
  int64_t Close(int64_t step,
                absl::FunctionRef<std::shared_ptr<Session>(int32_t worker)> session_of);
  void EndClosing();

  // True if the call may begin request.step: the steps below it are decided and closed here. Then
  // fills in the open step and the decisions asked for. kInvalidArgument: a step beyond the next.
  absl::StatusOr<bool> TryBegin(int32_t worker, const wire::PullRequest& request,
                                wire::PullReply& reply) const;

  Waiters::iterator AddWaiter(const Waiter& waiter);
  void RemoveWaiter(Waiters::iterator waiter);
  // What `waiter` waits for and which workers are missing, as one sentence.
  std::string WaitText(const Waiter& waiter) const;

  // Wake ends every WaitForWake. A worker joined, left or announced a step, or a step closed.
  void Wake();
  int64_t generation() const;
  // Waits until Wake was called after generation() returned `generation`, or until `deadline`.
  void WaitForWake(int64_t generation, Deadline deadline);
  // Ends every wait, now and later, with `why`.
  void Stop(const absl::Status& why);
  absl::Status stopped() const;

  // Adds the number of waiting calls to `counts`, by the reason why they wait.
  void CountWaits(std::map<std::string, int64_t>& counts) const;
  // Adds the `most_waits` longest waits to the reply. Returns how many there are.
  size_t FillWhy(wire::WhyReply& reply, size_t most_waits) const;

  // Held while the sessions of a closing step's workers change, and while a snapshot notes all
  // sessions: a snapshot holds either all of these changes or none.
  absl::Mutex& notes_mutex() { return notes_mutex_; }
  // Of kStepWorker; nullptr if the job is not synchronous.
  std::shared_ptr<Session> session() const;

 private:
  struct MissingText {
    std::string what;             // "step 4 is not decided", "… not closed"
    absl::string_view waits_for;  // WaitingCall.waits_for
    std::vector<int32_t> workers;
  };

  MissingText FindMissing() const;
  // `names`: missing.workers as Cohort::Describe.
  std::string WaitText(const Waiter& waiter, const MissingText& missing,
                       absl::string_view names) const;
  std::vector<Waiter> waiters() const;

  const std::string job_;
  Cohort& cohort_;
  const StepRole role_;
  std::atomic<bool> active_{false};

  // Locked before mutex_. mutex_ itself is never held over a write to the disk.
  mutable absl::Mutex deciding_ ABSL_ACQUIRED_BEFORE(mutex_);
  bool ended_ ABSL_GUARDED_BY(deciding_) = false;
  mutable absl::Mutex mutex_;
  SyncSteps steps_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t dropped_on_disk_ ABSL_GUARDED_BY(mutex_) = 0;             // decisions up to this step
  std::vector<NamedContribution> awaited_ ABSL_GUARDED_BY(mutex_);  // by the next step to close
  Waiters waiters_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex notes_mutex_ ABSL_ACQUIRED_AFTER(mutex_);

  // The cohort calls Wake under its own lock, so no other lock is taken under this one.
  mutable absl::Mutex wake_mutex_;
  MonotonicCondVar wake_;
  int64_t generation_ ABSL_GUARDED_BY(wake_mutex_) = 0;
  absl::Status stopped_ ABSL_GUARDED_BY(wake_mutex_);
};

}  // namespace cairn
