// tf.distribute.Strategy: how one program's variables and computation spread over devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
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
#include "worker/strategy/strategy_handle.h"
#include "worker/strategy/value.h"
#include "worker/strategy/value_function.h"
#include "worker/strategy/variable.h"

namespace cairn {

class ReplicaThreads;
struct ScopeEntry;

// What a function called for each replica, before there are replica contexts, may know.
struct ValueContext {
  int32_t replica_id_in_sync_group = 0;
  int32_t num_replicas_in_sync = 1;
};

// Along which axes each replica's tensor is reduced before the replicas are: Axes() or {} for none
// at all, Axes({0}), Axes({0, 1}). Negative axes count from the last.
class Axes {
 public:
  Axes() = default;
  Axes(std::nullopt_t) {}                                                 // NOLINT
  Axes(std::initializer_list<int64_t> axes) : axes_(axes) {}              // NOLINT
  Axes(std::vector<int64_t> axes) : axes_(std::move(axes)) {}             // NOLINT
  Axes(const std::optional<std::vector<int64_t>>& axes) : axes_(axes) {}  // NOLINT

  bool has_value() const { return axes_.has_value(); }
  const std::vector<int64_t>& operator*() const { return *axes_; }

 private:
  std::optional<std::vector<int64_t>> axes_;
};

// One step of a DistributedIterator as an argument of Run: each replica's element, a tensor if it
// has one component, else a tuple.
Value StepValue(absl::Span<const Element> of_replicas);

// Returns void, absl::Status, Value or absl::StatusOr<Value>.
using ReplicaFn = ValueFunction<absl::Span<const Value>>;

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
  // The object moved from is of no scope.
  Scope(Scope&& other) noexcept = default;
  // Leaves this object's own scope first, as the destructor does.
  Scope& operator=(Scope&& other) noexcept;
  // Where Exit fails, the destructor logs why and the scope ends all the same: at once, or, where
  // it was entered in another thread or others were entered inside it, as soon as its thread is at
  // it.
  ~Scope();

  // Leaves the scope. kFailedPrecondition: another one that was entered inside it is still open, or
  // this thread has not entered it: it stays entered then. Also, and then it is over: the function
  // that entered it has returned, or the strategy was destroyed.
  absl::Status Exit();

 private:
  friend class Strategy;
  Scope() = default;

  std::shared_ptr<ScopeEntry>
      entry_;  // null: left, or the default strategy's, which enters nothing
  // Depths of the thread's stacks (context_stack.h) when it was entered.
  size_t devices_ = 0;
  size_t creators_ = 0;
};

// The base of all strategies; users may derive their own. Not copied. What a strategy has made
// (variables, contexts, scopes, optimizers, datasets) may outlive it: calls that need the strategy
// are then kFailedPrecondition. A strategy must not be destroyed while one of its calls runs, in
// this thread (in a replica function, say) or another.
//
// Functions given to a strategy may throw: what is thrown comes out as kUnknown, and the strategy
// is as usable as after any other error. Without a function, or with a null variable, calls are
// kInvalidArgument.
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

  // For those that may outlive it.
  const StrategyHandle& handle() const { return handle_; }

  // Makes this strategy current in the calling thread. kFailedPrecondition: in a replica function,
  // or in another strategy's scope. kInvalidArgument: a device of the strategy has a negative
  // number.
  absl::StatusOr<Scope> EnterScope();

  // Calls `fn` once for each local replica, in parallel, each in a thread of its own (one replica:
  // in the caller's), with its component of every distributed argument; GetReplicaContext() tells
  // which. Returns what Regroup makes of the results; with one replica, its result. The first
  // replica's error that is not a consequence of another's; kUnknown where its function throws.
  // kInvalidArgument: a distributed argument with more or fewer components than local replicas.
  // Cross-replica.
  absl::StatusOr<Value> Run(const ReplicaFn& fn, absl::Span<const Value> args = {});

  // Reduces over the replicas of all workers. With axes, each replica's tensor is first reduced
  // along them, and a mean is weighted by how many elements each replica had (none: 0; none at all:
  // NaN); without, by replica. The mean of integers is float64. A value that is not distributed
  // counts as every replica's. Structures are reduced leaf by leaf. Cross-replica.
  // kInvalidArgument: shapes differ, an axis out of range, the sum of one value that is not
  // distributed, a value of another number of components than local replicas.
  virtual absl::StatusOr<Value> Reduce(ReduceOp op, const Value& value, const Axes& axes);

  // The replicas' tensors one after the other along `axis`. Errors as AllGather's. Cross-replica.
  virtual absl::StatusOr<Value> Gather(const Value& value, int64_t axis);

  // The local components of distributed values and structures: one entry for each local replica,
  // for a structure what it holds for that replica; for any other value one entry, itself.
  absl::StatusOr<std::vector<Value>> LocalResults(const Value& value) const;

  // PerReplica of what `fn` returns for each local replica.
  absl::StatusOr<Value> DistributeValuesFromFunction(const ValueFunction<const ValueContext&>& fn);

  // The global batches of `dataset`, divided among workers and replicas, and what `function` makes
  // for each worker (distributed_dataset.h has rules and errors). Cross-replica.
  absl::StatusOr<DistributedDataset> DistributeDataset(const Dataset& dataset,
                                                       const InputOptions& options = {});
  absl::StatusOr<DistributedDataset> DistributeDatasetsFromFunction(
      const DatasetInputFunction& function, const InputOptions& options = {});

  // --- tf.distribute.StrategyExtended ---

  // Reduces to one tensor (or slices) on each destination, Mirrored if there are several.
  // Structures are reduced leaf by leaf. Errors as Reduce's. Cross-replica.
  absl::StatusOr<Value> ReduceTo(ReduceOp op, const Value& value, const Destinations& destinations);
  absl::StatusOr<std::vector<Value>> BatchReduceTo(
      ReduceOp op, absl::Span<const std::pair<Value, Destinations>> values);
  absl::StatusOr<Value> BroadcastTo(const Value& value, const Destinations& destinations);

  // Calls `fn` once for each copy of `variable`, with that copy and its component of each argument;
  // UpdateReplicaId() is set meanwhile. Also from a replica function, as a merge call.
  // kInvalidArgument: a plain variable of no strategy. Returns the regrouped results.
  using UpdateFn = ValueFunction<const VariablePtr&, absl::Span<const Value>>;
  absl::StatusOr<Value> Update(const VariablePtr& variable, const UpdateFn& fn,
                               absl::Span<const Value> args = {});
  // Calls `fn` once for each device, in an update.
  absl::StatusOr<Value> UpdateNonSlot(absl::Span<const Device> devices, const ReplicaFn& fn,
                                      absl::Span<const Value> args = {});

  // Whether `variable`, not null, was made under this strategy.
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

  // Called with what each Run returns, in its thread.
  virtual void RunEnded(const absl::Status& /*status*/) {}

  // kFailedPrecondition unless called in cross-replica context or outside every scope.
  // kInvalidArgument: a device with a negative number.
  absl::Status CheckCrossReplica(absl::string_view method) const;

 protected:
  // One replica a device, at least one. CheckDevices has what derived classes refuse before.
  explicit Strategy(std::vector<Device> worker_devices);

 private:
  absl::StatusOr<Value> ReduceAxes(ReduceOp op, const Value& value, absl::Span<const int64_t> axes);
  absl::StatusOr<Value> RunOne(const ReplicaFn& fn, absl::Span<const Value> args);
  absl::StatusOr<Value> RunReplicas(const ReplicaFn& fn, absl::Span<const Value> args);
  absl::StatusOr<Value> UpdateCopies(const VariablePtr& variable, const UpdateFn& fn,
                                     absl::Span<const Value> args);

  // kInvalidArgument: a distributed value in `value` has not one component for each local replica.
  absl::Status CheckComponents(absl::string_view method, const Value& value) const;

  const std::vector<Device> worker_devices_;
  std::unique_ptr<ReplicaThreads> threads_;
  StrategyHandle handle_;
};

// kInvalidArgument, which begins with `who`: no device, one twice, or one with a negative number.
absl::Status CheckDevices(absl::string_view who, absl::Span<const Device> devices);

// The strategy outside every scope: one replica on cpu:0, plain variables. Never destroyed.
Strategy& DefaultStrategy();

}  // namespace cairn
