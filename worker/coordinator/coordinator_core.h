// The queue and workers of a ClusterCoordinator. Its threads may use them after its destruction.
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
#include "worker/strategy/strategy_handle.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class ClusterCoordinator::Core {
 public:
  Core(CoordinatorOptions options, const ParameterServerStrategy& strategy);

  // The loop of worker `worker`'s thread: calls functions until the coordinator ends.
  void Work(int32_t worker);
  // Records that worker `worker` has no thread.
  void LoseThread(int32_t worker, const absl::Status& why);

  // As the methods of ClusterCoordinator.
  absl::Status Add(std::shared_ptr<ScheduledCall> call);
  absl::Status Join(Deadline deadline);
  absl::StatusOr<bool> Done();
  absl::StatusOr<std::shared_ptr<PerWorkerDataset>> MakeDataset(DatasetFactory factory);
  // Cancels all functions and waits for all worker threads except the calling one. Returns the
  // number of threads that have not ended after cancel_wait.
  int32_t End();

 private:
  using Call = std::shared_ptr<ScheduledCall>;
  // Calls to destroy after the lock is released: their functions may hold the coordinator.
  using Dropped = std::deque<Call>;

  void CallFunctions(int32_t worker);
  // Enters the strategy's scope in this thread, unless the coordinator ends.
  void EnterStrategy();
  // Gives the worker no more functions.
  void Lose(int32_t worker, const absl::Status& why);
  // Null if the coordinator ends.
  Call Take(int32_t worker);
  void Finish(int32_t worker, const Call& call, absl::StatusOr<Value> result);
  // Requeues `call` and makes the worker ready again. Returns false if the worker is gone for good.
  bool Recover(int32_t worker, const Call& call, const absl::Status& loss);
  absl::Status RemakeDatasets(int32_t worker);
  // Removes `call`, which has returned, from the running calls. True if it was running and not
  // cancelled.
  bool Return(int32_t worker, const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Empties the queue and asks all running functions to stop.
  Dropped CancelAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Dropped Fail(absl::Status error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first failure since the last call, with the number of functions that still run.
  absl::Status TakeError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t Running() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until `ready`, or, after a failure, until every function that was asked to stop has
  // returned. False if that takes longer than `deadline` or, after a failure, than stop_deadline_.
  bool Await(Deadline deadline, bool (Core::*ready)() const) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.size() < options_.queue_limit;
  }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.empty() && Running() == 0;
  }

  const CoordinatorOptions options_;
  const StrategyHandle strategy_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar queued_;  // for workers: the queue grew, or the coordinator ends
  MonotonicCondVar moved_;   // for callers: the queue shrank, a call ended, or an error occurred
  std::deque<Call> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<Call> running_ ABSL_GUARDED_BY(mutex_);  // for each worker; null: none
  int64_t stopping_ ABSL_GUARDED_BY(mutex_) = 0;       // cancelled calls that have not returned
  Deadline stop_deadline_ ABSL_GUARDED_BY(mutex_) = Deadline::In(absl::ZeroDuration());
  int32_t threads_left_ ABSL_GUARDED_BY(mutex_);
  int32_t workers_left_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);  // the first failure that was not returned yet
  std::vector<std::weak_ptr<PerWorkerDataset>> datasets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
