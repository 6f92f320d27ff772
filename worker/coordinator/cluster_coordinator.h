// Schedules functions on the workers of a ParameterServerStrategy:
// tf.distribute.coordinator.ClusterCoordinator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "worker/coordinator/per_worker_dataset.h"
#include "worker/coordinator/remote_value.h"
#include "worker/coordinator/scheduled_call.h"
#include "worker/strategy/parameter_server_strategy.h"

namespace cairn {

struct CoordinatorOptions {
  // Functions that wait for a worker; beyond it Schedule waits.
  size_t queue_limit = 262144;
  // How long Schedule waits for room in the queue, and for functions that run to end before it
  // gives an error.
  absl::Duration schedule_wait = absl::Minutes(10);
  // Called with a worker that was lost, before it is used again: returns when it is there, or an
  // error, and then this worker gets no more functions. None: it is used again at once.
  std::function<absl::Status(int32_t worker)> wait_for_worker;
};

// **Functions run in this process**: C++ functions do not travel, so each worker of the cluster is
// a thread here that calls one function after the other, in which CurrentWorker() is its number.
// Variables are on the parameter servers all the same. A function that computes on another machine
// is one that calls that machine, and reports its loss with WorkerLost.
//
// A function is called at least once, by whichever worker is free, in no order. If it returns
// WorkerLost it is called again by another worker; any other error (kUnavailable of a parameter
// server among them) is a failure: functions still in the queue are cancelled, and the next call of
// Schedule, Join or Done returns that error, once. After that the coordinator works as before.
//
// Thread safety: every method may be called from several threads at once, none of them from a
// scheduled function.
class ClusterCoordinator {
 public:
  // The strategy's coordinator: the same one as long as somebody holds it; `options` are those of
  // the first call. `strategy` outlives it.
  static std::shared_ptr<ClusterCoordinator> Of(ParameterServerStrategy& strategy,
                                                CoordinatorOptions options = {});
  // Cancels what is in the queue and waits for the functions that run.
  ~ClusterCoordinator();
  ClusterCoordinator(const ClusterCoordinator&) = delete;
  ClusterCoordinator& operator=(const ClusterCoordinator&) = delete;

  ParameterServerStrategy& strategy() const { return strategy_; }

  // Returns at once unless the queue is full. kInvalidArgument: no function. kDeadlineExceeded: the
  // queue stayed full. Else an earlier function's error; then nothing was scheduled.
  absl::StatusOr<RemoteValue> Schedule(ScheduledCall::Function function,
                                       std::vector<Value> args = {});
  // Waits until no function is in the queue or runs. An earlier function's error.
  // kDeadlineExceeded: says how many are left.
  absl::Status Join(Deadline deadline);
  // Whether none is; does not wait.
  absl::StatusOr<bool> Done();
  // The values of all, in order, or the first error among them.
  absl::StatusOr<std::vector<Value>> Fetch(absl::Span<const RemoteValue> values,
                                           Deadline deadline) const;

  // Calls `factory` once for each worker, now, and again for one that was lost. Errors are the
  // factory's. kInvalidArgument: it creates variables.
  absl::StatusOr<std::shared_ptr<PerWorkerDataset>> CreatePerWorkerDataset(DatasetFactory factory);

 private:
  ClusterCoordinator(ParameterServerStrategy& strategy, CoordinatorOptions options);

  void Work(int32_t worker);
  // False: the coordinator ends.
  bool Take(std::shared_ptr<ScheduledCall>* call);
  void Finish(const std::shared_ptr<ScheduledCall>& call, absl::StatusOr<Value> result);
  // Puts `call` back and makes the worker ready again. False: it is not there any more.
  bool Recover(int32_t worker, const std::shared_ptr<ScheduledCall>& call,
               const absl::Status& loss);
  absl::Status MakeDatasets(int32_t worker);
  void CancelQueued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(absl::Status error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether Schedule need not wait any longer.
  bool HasRoomOrError() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return error_.ok() ? queue_.size() < options_.queue_limit : running_ == 0;
  }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.empty() && running_ == 0;
  }

  ParameterServerStrategy& strategy_;
  const CoordinatorOptions options_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar queued_;  // for workers: the queue has grown, or the coordinator ends
  MonotonicCondVar moved_;   // for callers: the queue is shorter, running_ is less, or an error
  std::deque<std::shared_ptr<ScheduledCall>> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  int32_t workers_left_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);  // the first failure, not yet told
  std::vector<std::weak_ptr<PerWorkerDataset>> datasets_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

// What a scheduled function returns when the machine that it computes on is gone: kUnavailable,
// naming CurrentWorker(). The function is called again by another worker.
absl::Status WorkerLost(absl::string_view why);

}  // namespace cairn
