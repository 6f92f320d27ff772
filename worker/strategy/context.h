// The context of a call: outside every strategy, in a strategy's scope, in a replica function, in a
// merge call or in an update. Each thread has its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/collective/communication_options.h"
#include "worker/collective/reduce_op.h"
#include "worker/strategy/strategy_handle.h"
#include "worker/strategy/value.h"
#include "worker/strategy/value_function.h"

namespace cairn {

struct CallName;
class ReplicaBarrier;
class Strategy;

// One replica's side of Strategy::Run, valid in its replica function and in the thread that runs
// it. A context that is kept longer refuses every call (kFailedPrecondition), also after its
// strategy was destroyed.
class ReplicaContext {
 public:
  // `barrier` is null for a single replica, which waits for no other.
  ReplicaContext(Strategy* strategy, ReplicaBarrier* barrier, int32_t local_replica,
                 int32_t replica_id, Device device)
      : strategy_(strategy),
        barrier_(barrier),
        local_replica_(local_replica),
        replica_id_(replica_id),
        device_(device) {}

  // Null after the strategy was destroyed.
  Strategy* strategy() const { return strategy_.get(); }
  // 0 after the strategy was destroyed.
  int32_t num_replicas_in_sync() const;
  // In [0, num_replicas_in_sync()), counted over all workers.
  int32_t replica_id_in_sync_group() const { return replica_id_; }
  // Index among the replicas of this process.
  int32_t local_replica() const { return local_replica_; }
  Device device() const { return device_; }

  // Waits for every replica, calls `merge_fn` once in cross-replica context with the replicas'
  // arguments regrouped, and returns to each replica its component of the result. Every replica
  // must make the same merge calls in the same order. kFailedPrecondition: another replica ended
  // without this call, or this context is not the current one. Every replica returns the errors of
  // `merge_fn`. kUnknown: `merge_fn` threw an exception.
  using MergeFn = ValueFunction<Strategy&, absl::Span<const Value>>;
  absl::StatusOr<Value> MergeCall(const MergeFn& merge_fn, absl::Span<const Value> args = {});

  // Sum or mean over all replicas of all workers; every replica gets the same result. The mean
  // of integers is float64, but a single replica's value keeps its dtype. `value` may be a
  // structure of tensors, slices (which are concatenated) and variables (each replica gives its own
  // copy). Every replica must make the same calls in the same order. `options.timeout` bounds this
  // replica's wait for the other replicas of this process (default 10 minutes), and each collective
  // between processes.
  // kInvalidArgument: shapes or dtypes differ between replicas. kDeadlineExceeded: the message
  // names the missing replicas.
  absl::StatusOr<Value> AllReduce(ReduceOp op, const Value& value,
                                  const CommunicationOptions& options = {});
  // The gradient of AllReduce's input, given the gradient `upstream` of its output on this replica.
  absl::StatusOr<Value> AllReduceGradient(ReduceOp op, const Value& upstream) {
    return AllReduce(op, upstream);
  }
  // Concatenates the replicas' tensors along `axis`; their extents along `axis` may differ.
  // kInvalidArgument: other extents or ranks differ, or scalars. kUnimplemented: slices.
  absl::StatusOr<Value> AllGather(const Value& value, int64_t axis,
                                  const CommunicationOptions& options = {});
  // The gradient of AllGather's input, whose extent along `axis` was `extent`: sums `upstream` over
  // all replicas and returns this replica's part of the sum. kInvalidArgument: `upstream` is not a
  // tensor, or its extent is not the sum of the replicas' extents.
  absl::StatusOr<Value> AllGatherGradient(const Value& upstream, int64_t axis, int64_t extent);

 private:
  friend absl::StatusOr<Value> MergeCallFor(ReplicaContext& context, const CallName& name,
                                            const MergeFn& merge_fn, absl::Span<const Value> args);
  // kFailedPrecondition unless this context is the calling thread's current one.
  absl::Status CheckCurrent() const;
  // Calls `fn` once with the values of all replicas; each gets its own of the results. `what` names
  // the call.
  using CollectiveFn =
      absl::FunctionRef<absl::StatusOr<std::vector<Value>>(absl::Span<const Value> of_replicas)>;
  absl::StatusOr<Value> Together(std::string what, const CommunicationOptions& options,
                                 const Value& value, CollectiveFn fn);

  const StrategyHandle strategy_;
  ReplicaBarrier* const barrier_;
  const int32_t local_replica_;
  const int32_t replica_id_;
  const Device device_;
};

// The strategy of the innermost scope or replica function; outside all of them, the default
// strategy.
Strategy& GetStrategy();
// Whether GetStrategy() is not the default strategy.
bool HasStrategy();
// Whether this thread is in a scope, a merge call or an update.
bool InCrossReplicaContext();
// Null in cross-replica context. Outside every scope, the context of the default strategy.
std::shared_ptr<ReplicaContext> GetReplicaContext();
// Index of the copy that the current update function is called for; empty outside updates.
std::optional<int32_t> UpdateReplicaId();
// The device of the innermost replica function, update or DeviceScope; outside all of them, cpu:0.
Device CurrentDevice();

// Makes `strategy` current in this thread outside every scope, as if in its scope, until the next
// SetStrategy or the strategy's destruction. Null restores the default strategy.
// kFailedPrecondition: called in a scope or replica function. kInvalidArgument: a device of the
// strategy has a negative number; the default strategy is then current.
absl::Status SetStrategy(Strategy* strategy);

// Calls `fn` as if this thread were in no scope, replica function or update. For user functions
// that are not part of a step, such as functions that make datasets. The contexts are restored when
// `fn` returns or throws.
absl::Status OutsideEveryScope(absl::FunctionRef<absl::Status()> fn);

// During its lifetime, CurrentDevice() is `device` in the thread that created it. It may be
// destroyed in another thread, or before a scope that was opened inside it.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const std::shared_ptr<std::atomic<bool>> left_;
};

}  // namespace cairn
