// Schedules functions on the workers of a ParameterServerStrategy:
// tf.distribute.coordinator.ClusterCoordinator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "worker/coordinator/per_worker_dataset.h"
#include "worker/coordinator/remote_value.h"
#include "worker/coordinator/scheduled_call.h"
#include "worker/strategy/cancellation.h"
#include "worker/strategy/parameter_server_strategy.h"

namespace cairn {

struct CoordinatorOptions {
  // Functions that wait for a worker; beyond it Schedule waits.
  size_t queue_limit = 262144;
  // How long Schedule waits for room in the queue.
  absl::Duration schedule_wait = absl::Minutes(10);
  // How long Schedule and Join, before they return a function's error, and the destructor wait for
  // functions that were asked to stop.
  absl::Duration cancel_wait = absl::Seconds(30);
  // Called with a worker that was lost, before it is used again: returns when it is there, or an
  // error, and then this worker gets no more functions. None: it is used again at once.
  std::function<absl::Status(int32_t worker)> wait_for_worker = {};
};

// **Functions run in this process**: C++ functions do not travel, so each worker of the cluster is
// a thread here that calls one function after the other, in which CurrentWorker() is its number.
// Variables are on the parameter servers all the same. A function that computes on another machine
// is one that calls that machine, and reports its loss with WorkerLost.
//
// A function is called at least once, by whichever worker is free, in no order. If it returns
// WorkerLost it is called again by another worker; any other error (kUnavailable of a parameter
// server among them) is a failure: the results of the functions in the queue and of those that run
// become kCancelled, the latter's CurrentCancellation() (cancellation.h) tells them to stop, and
// the next call of Schedule, Join or Done returns that error, once. After that the coordinator
// works as before, on the workers whose functions have returned.
//
// Thread safety: every method may be called from several threads at once.
class ClusterCoordinator {
 public:
  // The strategy's coordinator: the same one as long as somebody holds it; `options` are those of
  // the first call.
  static std::shared_ptr<ClusterCoordinator> Of(ParameterServerStrategy& strategy,
                                                CoordinatorOptions options = {});
  // Cancels the functions in the queue and those that run, and waits for the latter, at most
  // options.cancel_wait: a function that goes on longer is left to its thread (and logged), so what
  // it uses must outlive it. In a scheduled function, that one is not waited for.
  ~ClusterCoordinator();
  ClusterCoordinator(const ClusterCoordinator&) = delete;
  ClusterCoordinator& operator=(const ClusterCoordinator&) = delete;

  // To be called while the strategy lives.
  ParameterServerStrategy& strategy() const { return strategy_; }

  // Returns at once unless the queue is full. kInvalidArgument: no function. kDeadlineExceeded: the
  // queue stayed full. Else an earlier function's error; then nothing was scheduled.
  absl::StatusOr<RemoteValue> Schedule(ScheduledCall::Function function,
                                       std::vector<Value> args = {});
  // Waits until no function is in the queue or runs, or for an earlier function's error: which says
  // how many functions that were asked to stop still run. kDeadlineExceeded: says how many
  // functions are left. kFailedPrecondition: called in a scheduled function, which would wait for
  // itself.
  absl::Status Join(Deadline deadline);
  // Whether none is; does not wait.
  absl::StatusOr<bool> Done();
  // The values of all, in order, or the first error among them.
  absl::StatusOr<std::vector<Value>> Fetch(absl::Span<const RemoteValue> values,
                                           Deadline deadline) const;

  // Calls `factory` once for each worker, now, and again for one that was lost. Errors are the
  // factory's; kUnknown: it threw. kInvalidArgument: there is none, or it creates variables.
  absl::StatusOr<std::shared_ptr<PerWorkerDataset>> CreatePerWorkerDataset(DatasetFactory factory);

 private:
  class Core;

  ClusterCoordinator(ParameterServerStrategy& strategy, CoordinatorOptions options);

  ParameterServerStrategy& strategy_;
  const std::shared_ptr<Core> core_;  // shared with the workers' threads
  std::vector<std::thread> threads_;
};

// What a scheduled function returns when the machine that it computes on is gone: kUnavailable,
// naming CurrentWorker(). The function is called again by another worker.
absl::Status WorkerLost(absl::string_view why);
// Whether `status` is such a one.
bool IsWorkerLost(const absl::Status& status);

}  // namespace cairn
