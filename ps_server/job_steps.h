// The steps of one synchronous job on one server: what contributions wait, who is waited for, and
// the closing of steps in order. ps_server/SYNC.md has the protocol.
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
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/cohort.h"
#include "ps_server/session.h"
#include "ps_server/sync_steps.h"
#include "thrift/cairn_types.h"

namespace cairn {

struct Admitted;
struct ServerCore;

// Thread safety: every method may be called from several threads at once, but Load before all
// others. Steps are closed in the thread of whoever finds that one can be, one after the other; no
// lock is held meanwhile.
class JobSteps {
 public:
  // Both outlive this.
  JobSteps(absl::string_view job, Cohort* cohort) : job_(job), cohort_(*cohort) {}

  // What the store kept. `closed`: of kStepWorker.
  void Load(const ServerCore& core, const WorkerRecord& closed,
            std::vector<DecisionRecord> decisions);
  // A synchronous worker says hello. Where none did before the first step here is the one after
  // `after`: to be on disk (Session::durable_incarnation of what is returned) before anybody hears
  // of it, for another worker might name a later one after a restart.
  std::shared_ptr<Session> Begin(const ServerCore& core, int64_t after);
  // Whether the job is, or was, synchronous.
  bool active() const { return active_.load(std::memory_order_acquire); }

  int64_t open() const;
  void Fill(wire::ServerState& state) const;

  // A worker's new start: of its earlier ones nothing more is named.
  void Restart(const ServerCore& core, int32_t worker);
  // On the coordinator: the last sequence of a worker that a decision names; else 0.
  int64_t LastNamed(const ServerCore& core, int32_t worker) const;

  int64_t closed() const;
  int64_t decided() const;
  // The last step that has begun here for rows of `variable`: a decision of it is known, or a
  // contribution with a part of the variable is pending. At least closed().
  int64_t LastBegun(absl::string_view variable) const;

  // As SyncSteps::Add.
  SyncSteps::Added Add(PendingContribution contribution, bool replaces);
  // Takes note of decisions that a worker brings; the coordinator stores those that it has lost.
  absl::Status Learn(ServerCore& core, absl::Span<const wire::StepDecision> decisions);
  // Closes every step that can be. kResourceExhausted: there is no memory for one's mean, which
  // stays open; asked again, it is tried again.
  absl::Status CloseSteps(ServerCore& core, const Admitted& admitted);

  // A worker that has announced request.step (Cohort::Await): waits until the steps below are
  // decided and closed here, deciding what can be where this is the coordinator. Fills in the open
  // step and the decisions asked for. WAIT_EXPIRED: who is missing. Else as Cohort::Check; FENCED;
  // STOPPING.
  absl::Status Await(ServerCore& core, const Admitted& admitted, const wire::PullRequest& request,
                     wire::PullReply& reply);
  // Waits until no sequence of the caller waits for its step. WAIT_EXPIRED.
  absl::Status AwaitNoneWaiting(ServerCore& core, const Admitted& admitted, int64_t incarnation,
                                Deadline deadline);

  // Somebody who counts has come, gone or announced a step.
  void Wake();
  // Ends every wait, now and later, with `why`.
  void Stop(const absl::Status& why);

  // Calls that wait here, by what for, added to `counts`.
  void CountWaits(std::map<std::string, int64_t>& counts) const;
  // `most_waits` of them, those that came first. How many there are.
  size_t FillWhy(wire::WhyReply& reply, size_t most_waits) const;

  // Held while the closing of a step is told to its workers' sessions, and while an epoch takes
  // note of them all: what is published of them belongs together.
  absl::Mutex& notes_mutex() { return notes_mutex_; }
  // Of kStepWorker; nullptr where the job is not synchronous.
  std::shared_ptr<Session> session() const;

 private:
  struct Waiter {
    int32_t worker = -1;
    int64_t step = 0;
    absl::Duration since;  // on the monotonic clock
  };
  // What a waiter waits for.
  struct MissingText {
    std::string what;             // "step 4 is not decided", "… not closed"
    absl::string_view waits_for;  // WaitingCall.waits_for
    std::vector<int32_t> workers;
  };

  // As safe as the server's durability promises, before anybody is told; on the disk where another
  // one could be made in its place.
  absl::Status Store(ServerCore& core, const DecisionRecord& decision)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(deciding_);
  absl::Status Decide(ServerCore& core, int64_t below);
  absl::Status CloseOne(ServerCore& core, const Admitted& admitted, SyncSteps::Closing closing);
  // Whether a pull for `step` is to be answered.
  bool Ready(const ServerCore& core, int64_t step) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  std::vector<Waiter> Waiters() const;
  MissingText FindMissing() const;
  std::string WaitText(const Waiter& waiter, const MissingText& missing) const;
  void FillDecisions(const wire::PullRequest& request, wire::PullReply& reply) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status Forget(ServerCore& core, int64_t all_durable_step);
  int64_t generation() const;
  // Until Wake has been called since `generation`, or the deadline.
  void WaitForWake(int64_t generation, Deadline deadline);

  const std::string job_;
  Cohort& cohort_;
  std::atomic<bool> active_{false};

  // Held, before mutex_, from the making of a decision until it is on disk and learned, and by
  // whatever may change what it names or has to know it. mutex_ itself is never held over the disk.
  mutable absl::Mutex deciding_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable absl::Mutex mutex_;
  SyncSteps steps_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t dropped_on_disk_ ABSL_GUARDED_BY(mutex_) = 0;             // decisions up to this step
  std::vector<NamedContribution> awaited_ ABSL_GUARDED_BY(mutex_);  // by the step that is to close
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex notes_mutex_ ABSL_ACQUIRED_AFTER(mutex_);

  // Taken by the cohort under its own lock, so nothing else is locked inside.
  mutable absl::Mutex wake_mutex_;
  MonotonicCondVar wake_;
  int64_t generation_ ABSL_GUARDED_BY(wake_mutex_) = 0;
  absl::Status stopped_ ABSL_GUARDED_BY(wake_mutex_);
};

}  // namespace cairn
