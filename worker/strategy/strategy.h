// tf.distribute.Strategy: how one program's variables and computation spread over devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/collective/communication_options.h"
#include "worker/input/dataset/distributed_dataset.h"
#include "worker/strategy/context.h"
#include "worker/strategy/value.h"
#include "worker/strategy/variable.h"

namespace cairn {

class ReplicaThreads;

// What a function called for each replica, before there are replica contexts, may know.
struct ValueContext {
  int32_t replica_id_in_sync_group = 0;
  int32_t num_replicas_in_sync = 1;
};

// Along which axes each replica's tensor is reduced before the replicas are: none at all, one, or
// several. Negative axes count from the last.
using Axes = std::optional<std::vector<int64_t>>;

// One step of a DistributedIterator as an argument of Run: each replica's element, a tensor if it
// has one component, else a tuple.
Value StepValue(absl::Span<const Element> of_replicas);

using ReplicaFn = std::function<absl::StatusOr<Value>(absl::Span<const Value> args)>;

// Where a reduction's result goes: a device, or the devices of a variable or tensor.
class Destinations {
 public:
  Destinations(Device device) : value_(), device_(device) {}           // NOLINT
  Destinations(VariablePtr variable) : value_(std::move(variable)) {}  // NOLINT
  Destinations(Value value) : value_(std::move(value)) {}              // NOLINT

  // In order, each once. kInvalidArgument: a value that is on no device (none, a list).
  absl::StatusOr<std::vector<Device>> Devices() const;

 private:
  Value value_;
  Device device_;
};

// In scope from Strategy::EnterScope until Exit or destruction, in the thread that entered it.
class Scope {
 public:
  Scope(Scope&& other) noexcept { *this = std::move(other); }
  // Of a scope that was left, or moved from.
  Scope& operator=(Scope&& other) noexcept;
  ~Scope();

  // Leaves the scope. kFailedPrecondition: one that was entered inside it is still open; this one
  // stays entered then.
  absl::Status Exit();

 private:
  friend class Strategy;
  explicit Scope(Strategy* strategy) : strategy_(strategy) {}

  Strategy* strategy_ = nullptr;  // null: left, or of the default strategy, which enters nothing
  // Depths of the thread's stacks (context_stack.h) when it was entered.
  size_t modes_ = 0;
  size_t devices_ = 0;
  size_t creators_ = 0;
};

// The base of all strategies; users may derive their own. A strategy outlives its variables and
// contexts. Not copied.
//
// Methods in "cross-replica" below are called in the strategy's scope, in its merge and update
// functions, or outside every scope; elsewhere they are kFailedPrecondition.
//
// Thread safety: every method may be called from several threads at once; each thread has scopes of
// its own.
class Strategy {
 public:
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy();

  // "MirroredStrategy".
  virtual std::string name() const = 0;
  int32_t num_replicas_in_sync() const { return workers() * local_replicas(); }
  int32_t local_replicas() const { return static_cast<int32_t>(worker_devices().size()); }
  // Processes that compute together in every step.
  virtual int32_t workers() const { return 1; }
  virtual int32_t worker_index() const { return 0; }
  // One for each local replica.
  const std::vector<Device>& worker_devices() const { return worker_devices_; }
  // Where variables are.
  virtual std::vector<Device> parameter_devices() const { return worker_devices_; }
  virtual bool between_graph() const { return false; }
  virtual bool should_init() const { return true; }
  virtual bool should_checkpoint() const { return true; }
  virtual bool should_save_summary() const { return true; }
  // What CurrentDevice() is in its scope; none: as outside.
  virtual std::optional<Device> DefaultDevice() const { return std::nullopt; }
  // Whether VariableOptions::per_worker is known.
  virtual bool has_per_worker_variables() const { return false; }
  // The default strategy's scope and replica functions change no context.
  virtual bool is_default() const { return false; }

  // Makes this strategy current in the calling thread. kFailedPrecondition: in a replica function,
  // or in another strategy's scope.
  absl::StatusOr<Scope> EnterScope();

  // Calls `fn` once for each local replica, in parallel, each in a thread of its own (one replica:
  // in the caller's), with its component of every distributed argument; GetReplicaContext() tells
  // which. Returns what Regroup makes of the results; with one replica, its result. The first
  // replica's error that is not a consequence of another's; kUnknown where its function throws.
  // Cross-replica.
  absl::StatusOr<Value> Run(const ReplicaFn& fn, absl::Span<const Value> args = {});

  // Reduces over the replicas of all workers. With axes, each replica's tensor is first reduced
  // along them, and a mean is weighted by how many elements each replica had (none: 0; none at all:
  // NaN); without, by replica. The mean of integers is float64. A value that is not distributed
  // counts as every replica's. Structures are reduced leaf by leaf. Cross-replica.
  // kInvalidArgument: shapes differ, an axis out of range, the sum of one value that is not
  // distributed.
  virtual absl::StatusOr<Value> Reduce(ReduceOp op, const Value& value, const Axes& axes);

  // The replicas' tensors one after the other along `axis`. Errors as AllGather's. Cross-replica.
  virtual absl::StatusOr<Value> Gather(const Value& value, int64_t axis);

  // The local components of distributed values, also inside structures: one entry for each local
  // replica; for any other value one entry, itself.
  absl::StatusOr<std::vector<Value>> LocalResults(const Value& value) const;

  // PerReplica of what `fn` returns for each local replica.
  absl::StatusOr<Value> DistributeValuesFromFunction(
      const std::function<absl::StatusOr<Value>(const ValueContext&)>& fn);

  // The global batches of `dataset`, divided among workers and replicas, and what `function` makes
  // for each worker (distributed_dataset.h has rules and errors). Cross-replica.
  absl::StatusOr<DistributedDataset> DistributeDataset(const Dataset& dataset,
                                                       const InputOptions& options = {});
  absl::StatusOr<DistributedDataset> DistributeDatasetsFromFunction(
      const DatasetInputFunction& function, const InputOptions& options = {});

  // --- tf.distribute.StrategyExtended ---

  // Reduces to one tensor on each destination, Mirrored if there are several. Cross-replica.
  absl::StatusOr<Value> ReduceTo(ReduceOp op, const Value& value, const Destinations& destinations);
  absl::StatusOr<std::vector<Value>> BatchReduceTo(
      ReduceOp op, absl::Span<const std::pair<Value, Destinations>> values);
  absl::StatusOr<Value> BroadcastTo(const Value& value, const Destinations& destinations);

  // Calls `fn` once for each copy of `variable`, with that copy and its component of each argument;
  // UpdateReplicaId() is set meanwhile. Also from a replica function, as a merge call.
  // kInvalidArgument: a plain variable of no strategy. Returns the regrouped results.
  using UpdateFn =
      std::function<absl::StatusOr<Value>(const VariablePtr& copy, absl::Span<const Value> args)>;
  absl::StatusOr<Value> Update(const VariablePtr& variable, const UpdateFn& fn,
                               absl::Span<const Value> args = {});
  // Calls `fn` once for each device, in an update.
  absl::StatusOr<Value> UpdateNonSlot(absl::Span<const Device> devices, const ReplicaFn& fn,
                                      absl::Span<const Value> args = {});

  // Whether `variable` was made under this strategy.
  bool VariableCreatedInScope(const VariablePtr& variable) const;
  // A variable on the devices of `beside`. In this strategy's scope or replica function.
  // kInvalidArgument: `beside` is of another strategy.
  absl::StatusOr<VariablePtr> CreateVariableBeside(const VariablePtr& beside,
                                                   const VariableOptions& options);

  // --- For strategies ---

  // Makes a variable, called once for all replicas. `options` have synchronization and trainable as
  // the user gave them; `beside` null or a variable of this strategy.
  virtual absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                                   const VariablePtr& beside) = 0;

  // The first worker's `initial`, for variables with copies on every worker.
  virtual absl::StatusOr<Tensor> FirstValue(const Tensor& initial) { return initial; }
  // Sums or averages over all replicas of all workers, for several values at once: `locals[v]` has
  // the tensor (or slices) of value v of each local replica. One result a value, the same bits in
  // every process. Called in cross-replica context. The default is that of one process.
  virtual absl::StatusOr<std::vector<Value>> ReduceAll(ReduceOp op,
                                                       absl::Span<const Value::Sequence> locals,
                                                       const CommunicationOptions& options);
  // The same of one value, onto `devices` of this process.
  absl::StatusOr<std::vector<Value>> ReduceOnto(ReduceOp op, absl::Span<const Value> locals,
                                                absl::Span<const Device> devices);
  // Reduces a value that is not distributed. The default: a mean, a host zero, or one replica's is
  // itself; kInvalidArgument for other sums.
  virtual absl::StatusOr<Value> ReducePlain(ReduceOp op, const Value& value);
  // How datasets are divided.
  virtual InputStrategy input_strategy();
  // What the first replica of all workers holds of `value`.
  virtual absl::StatusOr<Value> BroadcastFirst(const Value& value) {
    return SelectReplica(value, 0);
  }
  // Concatenates, likewise.
  virtual absl::StatusOr<Tensor> GatherAll(absl::Span<const Value> locals, int64_t axis,
                                           const CommunicationOptions& options);

  // kFailedPrecondition unless called in cross-replica context or outside every scope.
  absl::Status CheckCrossReplica(absl::string_view method) const;

 protected:
  // One replica a device; duplicates are the caller's to refuse.
  explicit Strategy(std::vector<Device> worker_devices);

 private:
  // Leaf by leaf.
  absl::StatusOr<Value> ReduceStructure(ReduceOp op, const Value& value, const Axes& axes);
  absl::StatusOr<Value> ReduceAxes(ReduceOp op, const Value& value, absl::Span<const int64_t> axes);
  absl::StatusOr<Value> RunReplicas(const ReplicaFn& fn, absl::Span<const Value> args);
  absl::StatusOr<Value> UpdateCopies(const VariablePtr& variable, const UpdateFn& fn,
                                     absl::Span<const Value> args);

  const std::vector<Device> worker_devices_;
  std::unique_ptr<ReplicaThreads> threads_;
};

// The strategy outside every scope: one replica on cpu:0, plain variables. Never destroyed.
Strategy& DefaultStrategy();

}  // namespace cairn
