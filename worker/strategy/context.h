// Where a call stands: outside every strategy, in a strategy's scope, in a replica function, in a
// merge call or in an update. Kept per thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

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
class ReplicaMeeting;
class Strategy;

// One replica's side of Strategy::Run, for its replica function and the thread that it runs in. A
// context that is kept longer refuses every call (kFailedPrecondition), also after its strategy was
// destroyed.
class ReplicaContext {
 public:
  // `meeting` null: one replica, which waits for no other.
  ReplicaContext(Strategy* strategy, ReplicaMeeting* meeting, int32_t local_replica,
                 int32_t replica_id, Device device)
      : strategy_(strategy),
        meeting_(meeting),
        local_replica_(local_replica),
        replica_id_(replica_id),
        device_(device) {}

  // Null: the strategy was destroyed.
  Strategy* strategy() const { return strategy_.get(); }
  // 0: the strategy was destroyed.
  int32_t num_replicas_in_sync() const;
  // In [0, num_replicas_in_sync()), over all workers.
  int32_t replica_id_in_sync_group() const { return replica_id_; }
  // Among the replicas of this process.
  int32_t local_replica() const { return local_replica_; }
  Device device() const { return device_; }

  // Waits for every replica, calls `merge_fn` once in cross-replica context with the replicas'
  // arguments regrouped, and gives each its component of the result. Every replica must make the
  // same merge calls in the same order. kFailedPrecondition: another replica ended without this
  // call, or this context is not the current one. Errors of `merge_fn` come out on every replica.
  // kUnknown: `merge_fn` threw an exception.
  using MergeFn = ValueFunction<Strategy&, absl::Span<const Value>>;
  absl::StatusOr<Value> MergeCall(const MergeFn& merge_fn, absl::Span<const Value> args = {});

  // Sum or mean over all replicas of all workers, the same on each; `value` may be a structure
  // of tensors and slices (slices are concatenated). Every replica calls in the same order.
  // `options.timeout` bounds this replica's wait for the others of this process (default 10
  // minutes), and each collective between processes. kInvalidArgument: shapes or dtypes differ
  // between replicas. kDeadlineExceeded: names the replicas that did not come.
  absl::StatusOr<Value> AllReduce(ReduceOp op, const Value& value,
                                  const CommunicationOptions& options = {});
  // The gradient of AllReduce's input, given that of its output here.
  absl::StatusOr<Value> AllReduceGradient(ReduceOp op, const Value& upstream) {
    return AllReduce(op, upstream);
  }
  // The replicas' tensors one after the other along `axis`, whose extents may differ.
  // kInvalidArgument: other extents or ranks differ, or scalars. kUnimplemented: slices.
  absl::StatusOr<Value> AllGather(const Value& value, int64_t axis,
                                  const CommunicationOptions& options = {});
  // The gradient of AllGather's input: the sum over replicas of `upstream`, this replica's part,
  // whose extent along `axis` was `extent`.
  absl::StatusOr<Value> AllGatherGradient(const Value& upstream, int64_t axis, int64_t extent);

 private:
  friend absl::StatusOr<Value> MergeCallFor(ReplicaContext& context, const CallName& name,
                                            const MergeFn& merge_fn, absl::Span<const Value> args);
  // kFailedPrecondition unless this context is the calling thread's current one.
  absl::Status CheckCurrent() const;

  const StrategyHandle strategy_;
  ReplicaMeeting* const meeting_;
  const int32_t local_replica_;
  const int32_t replica_id_;
  const Device device_;
};

// The strategy of the innermost scope or replica function; the default strategy outside all.
Strategy& GetStrategy();
// Whether that is not the default strategy.
bool HasStrategy();
// In a scope, a merge call or an update.
bool InCrossReplicaContext();
// Null in cross-replica context. Outside every scope: the default strategy's.
std::shared_ptr<ReplicaContext> GetReplicaContext();
// Which copy an update function is called for; empty outside updates.
std::optional<int32_t> UpdateReplicaId();
// The device of the innermost replica function, update or DeviceScope; cpu:0 outside all.
Device CurrentDevice();

// Makes `strategy` the current one of this thread outside every scope, until it is destroyed; null
// goes back to the default strategy. kFailedPrecondition inside a scope or replica function.
absl::Status SetStrategy(Strategy* strategy);

// Calls `fn` as if this thread were in no scope, replica function or update: for functions of the
// user that are not part of a step, such as those that make datasets. The contexts are back when it
// returns or throws.
absl::Status OutsideEveryScope(absl::FunctionRef<absl::Status()> fn);

// While it lives, CurrentDevice() is `device` in the thread that made it. It may be destroyed in
// another thread, or before a scope inside it.
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
