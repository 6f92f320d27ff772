// The queue and the workers of a ClusterCoordinator, which its threads may use longer than it
// lives.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "worker/coordinator/cluster_coordinator.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class ClusterCoordinator::Core {
 public:
  Core(CoordinatorOptions options, int32_t workers);

  // What worker `worker`'s thread does: calls functions until the coordinator ends.
  void Work(int32_t worker);
  // Worker `worker` has no thread.
  void LoseThread(int32_t worker, const absl::Status& why);

  // As the methods of ClusterCoordinator.
  absl::Status Add(std::shared_ptr<ScheduledCall> call);
  absl::Status Join(Deadline deadline);
  absl::StatusOr<bool> Done();
  absl::StatusOr<std::shared_ptr<PerWorkerDataset>> MakeDataset(DatasetFactory factory);
  // Cancels everything and waits for the workers' threads but the calling one. Returns how many
  // have not ended after cancel_wait.
  int32_t End();

 private:
  using Call = std::shared_ptr<ScheduledCall>;
  // Calls to be destroyed without the lock: what their functions hold may be the coordinator.
  using Dropped = std::deque<Call>;

  void CallFunctions(int32_t worker);
  // The worker gets no more functions.
  void Lose(int32_t worker, const absl::Status& why);
  // Null: the coordinator ends.
  Call Take(int32_t worker);
  void Finish(int32_t worker, const Call& call, absl::StatusOr<Value> result);
  // Puts `call` back and makes the worker ready again. False: it is not there any more.
  bool Recover(int32_t worker, const Call& call, const absl::Status& loss);
  absl::Status RemakeDatasets(int32_t worker);
  // Whether `call`, which has returned, was running and not cancelled. It runs no more.
  bool Return(int32_t worker, const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes everything off the queue and asks all that runs to stop.
  Dropped CancelAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Dropped Fail(absl::Status error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first failure since the last call; says what still runs.
  absl::Status TakeError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t Running() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until `ready`, or, after a failure, until nothing that was asked to stop runs. False: it
  // did not come to that by `deadline` or, after a failure, by stop_deadline_.
  bool Await(Deadline deadline, bool (Core::*ready)() const) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.size() < options_.queue_limit;
  }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.empty() && Running() == 0;
  }

  const CoordinatorOptions options_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar queued_;  // for workers: the queue has grown, or the coordinator ends
  MonotonicCondVar moved_;   // for callers: the queue is shorter, fewer calls run, or an error
  std::deque<Call> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<Call> running_ ABSL_GUARDED_BY(mutex_);  // of each worker; null: none
  int64_t stopping_ ABSL_GUARDED_BY(mutex_) = 0;       // cancelled calls that have not returned
  Deadline stop_deadline_ ABSL_GUARDED_BY(mutex_) = Deadline::In(absl::ZeroDuration());
  int32_t threads_left_ ABSL_GUARDED_BY(mutex_);
  int32_t workers_left_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);  // the first failure, not yet returned
  std::vector<std::weak_ptr<PerWorkerDataset>> datasets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
