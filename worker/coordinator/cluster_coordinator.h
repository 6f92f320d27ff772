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
  // Maximum number of queued functions; Schedule waits while the queue is full.
  size_t queue_limit = 262144;
  // Maximum time that Schedule waits for space in the queue.
  absl::Duration schedule_wait = absl::Minutes(10);
  // Maximum time that Schedule and Join, before they return a function's error, and the destructor
  // wait for functions that were asked to stop.
  absl::Duration cancel_wait = absl::Seconds(30);
  // Called with the number of a lost worker before the worker is used again. Returns OK once the
  // worker is available; after an error the worker gets no more functions. Empty: the worker is
  // used again immediately.
  std::function<absl::Status(int32_t worker)> wait_for_worker = {};
};

// **Functions run in this process**: C++ functions cannot be sent to another process, so each
// worker of the cluster is a thread of this process that calls one function after the other, in the
// strategy's scope, with CurrentWorker() set to its number. Other strategies are therefore refused
// in a function. The variables are still on the parameter servers. To compute on another machine, a
// function calls that machine, and reports its loss with WorkerLost.
//
// A function is called at least once, by any idle worker, in no particular order. If it returns
// WorkerLost, another worker calls it again. Any other error (including kUnavailable of a parameter
// server) is a failure: the results of queued and running functions become kCancelled, the running
// ones are asked to stop through CurrentCancellation() (cancellation.h), and the next call of
// Schedule, Join or Done returns the error, once. The coordinator then continues to work, on the
// workers whose functions have returned.
//
// Thread safety: every method may be called from several threads at once.
class ClusterCoordinator {
 public:
  // The coordinator of `strategy`, shared by all holders; destroyed with the last of them.
  // `options` apply only to the call that creates it.
  static std::shared_ptr<ClusterCoordinator> Of(ParameterServerStrategy& strategy,
                                                CoordinatorOptions options = {});
  // Cancels queued and running functions, and waits at most options.cancel_wait for the running
  // ones. A function that runs longer is left to its thread (and logged), so the objects that it
  // uses must outlive it. A destructor that runs in a scheduled function does not wait for that
  // function.
  ~ClusterCoordinator();
  ClusterCoordinator(const ClusterCoordinator&) = delete;
  ClusterCoordinator& operator=(const ClusterCoordinator&) = delete;

  // Must be called while the strategy lives.
  ParameterServerStrategy& strategy() const { return strategy_; }

  // Returns at once unless the queue is full. kInvalidArgument: `function` is empty.
  // kDeadlineExceeded: the queue stayed full. Otherwise an earlier function's error; then nothing
  // was scheduled.
  absl::StatusOr<RemoteValue> Schedule(ScheduledCall::Function function,
                                       std::vector<Value> args = {});
  // Waits until no function is queued or running, or until an earlier function has failed; that
  // error says how many functions that were asked to stop still run. kDeadlineExceeded: the message
  // has the number of remaining functions. kFailedPrecondition: called in a scheduled function,
  // which would wait for itself.
  absl::Status Join(Deadline deadline);
  // Whether no function is queued or running; does not wait. Returns an earlier function's error.
  absl::StatusOr<bool> Done();
  // The results of all `values` in order, or the first error among them.
  absl::StatusOr<std::vector<Value>> Fetch(absl::Span<const RemoteValue> values,
                                           Deadline deadline) const;

  // Calls `factory` once for each worker, now, and again for each lost worker. Returns the
  // factory's errors; kUnknown: the factory threw an exception. kInvalidArgument: `factory` is
  // empty, or creates variables.
  absl::StatusOr<std::shared_ptr<PerWorkerDataset>> CreatePerWorkerDataset(DatasetFactory factory);

 private:
  class Core;

  ClusterCoordinator(ParameterServerStrategy& strategy, CoordinatorOptions options);

  ParameterServerStrategy& strategy_;
  const std::shared_ptr<Core> core_;  // shared with the workers' threads
  std::vector<std::thread> threads_;
};

// The status that a scheduled function returns when the machine that it computes on is gone:
// kUnavailable, naming CurrentWorker(). Another worker calls the function again.
absl::Status WorkerLost(absl::string_view why);
// Whether `status` was made by WorkerLost.
bool IsWorkerLost(const absl::Status& status);

}  // namespace cairn
