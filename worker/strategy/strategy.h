// tf.distribute.Strategy: distributes a program's variables and computation over devices.
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

// Argument of functions that are called for each replica before replica contexts exist.
struct ValueContext {
  int32_t replica_id_in_sync_group = 0;
  int32_t num_replicas_in_sync = 1;
};

// Axes along which each replica's tensor is reduced before the replicas are: Axes() or {} for no
// reduction along axes, Axes({0}), Axes({0, 1}). Negative axes count from the last.
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

// One step of a DistributedIterator as an argument of Run: a PerReplica of the replicas' tensors,
// or, for elements of several components, a tuple with a PerReplica of each component. A replica
// function gets its own element: a tensor or a tuple. With one replica, that element. Elements with
// different numbers of components are a PerReplica of tuples.
Value StepValue(absl::Span<const Element> of_replicas);

// Returns void, absl::Status, Value or absl::StatusOr<Value>.
using ReplicaFn = ValueFunction<absl::Span<const Value>>;

// Where a reduction places its result: on a device, or on the devices of a variable or tensor.
class Destinations {
 public:
  Destinations(Device device) : value_(), device_(device) {}           // NOLINT
  Destinations(VariablePtr variable) : value_(std::move(variable)) {}  // NOLINT
  Destinations(Value value) : value_(std::move(value)) {}              // NOLINT

  // The devices in order, without duplicates. kInvalidArgument: a value on no device (none, a
  // list).
  absl::StatusOr<std::vector<Device>> Devices() const;

 private:
  Value value_;
  Device device_;
};

// A strategy's scope, from Strategy::EnterScope until Exit or destruction, in the entering thread.
class Scope {
 public:
  // The moved-from object has no scope.
  Scope(Scope&& other) noexcept = default;
  // Leaves this object's own scope first, as the destructor does.
  Scope& operator=(Scope&& other) noexcept;
  // If Exit fails, the destructor logs the error and the scope ends all the same: at once, or, if
  // it was entered in another thread or has open scopes inside it, as soon as its thread finds it
  // innermost.
  ~Scope();

  // Leaves the scope. kFailedPrecondition with the scope still open: a scope entered inside it is
  // open, or this thread did not enter it. kFailedPrecondition with the scope over: the function
  // that entered it has returned, or the strategy was destroyed.
  absl::Status Exit();

 private:
  friend class Strategy;
  Scope() = default;

  std::shared_ptr<ScopeEntry>
      entry_;  // null: left, or of the default strategy, which enters nothing
  // Depths of the thread's stacks (context_stack.h) on entry.
  size_t devices_ = 0;
  size_t creators_ = 0;
};

// The base of all strategies; users may derive their own. Not copyable. Objects that a strategy
// made (variables, contexts, scopes, optimizers, datasets) may outlive it; their calls that need
// the strategy then return kFailedPrecondition. A strategy must not be destroyed while one of its
// calls runs, in this thread (in a replica function, for example) or another.
//
// Functions given to a strategy may throw: the call returns kUnknown, and the strategy stays as
// usable as after any other error. Calls with an empty function or a null variable are
// kInvalidArgument.
//
// Methods marked "Cross-replica" below must be called in the strategy's scope, in its merge and
// update functions, or outside every scope; elsewhere they return kFailedPrecondition.
//
// Thread safety: every method may be called from several threads at once; each thread has its own
// scopes.
class Strategy {
 public:
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy();

  // "MirroredStrategy".
  virtual std::string name() const = 0;
  int32_t num_replicas_in_sync() const { return workers() * local_replicas(); }
  int32_t local_replicas() const { return static_cast<int32_t>(worker_devices().size()); }
  // Number of processes that compute every step together.
  virtual int32_t workers() const { return 1; }
  virtual int32_t worker_index() const { return 0; }
  // One device for each local replica.
  const std::vector<Device>& worker_devices() const { return worker_devices_; }
  // Devices that hold the variables.
  virtual std::vector<Device> parameter_devices() const { return worker_devices_; }
  virtual bool between_graph() const { return false; }
  virtual bool should_init() const { return true; }
  virtual bool should_checkpoint() const { return true; }
  virtual bool should_save_summary() const { return true; }
  // CurrentDevice() in the strategy's scope; none: the scope does not change it.
  virtual std::optional<Device> DefaultDevice() const { return std::nullopt; }
  // Whether the strategy supports VariableOptions::per_worker.
  virtual bool has_per_worker_variables() const { return false; }
  // True for the default strategy, whose scope and replica functions change no context.
  virtual bool is_default() const { return false; }

  // For objects that may outlive the strategy.
  const StrategyHandle& handle() const { return handle_; }

  // Makes this strategy current in the calling thread. kFailedPrecondition: in a replica function,
  // or in another strategy's scope. kInvalidArgument: a device of the strategy has a negative
  // number.
  absl::StatusOr<Scope> EnterScope();

  // Calls `fn` once for each local replica, with its component of every distributed argument.
  // Replicas run in parallel, each in its own thread; a single replica runs in the caller's thread.
  // GetReplicaContext() identifies the replica. Returns the results regrouped (Regroup), or with
  // one replica its result. If replicas fail: the error of the first replica whose error is not a
  // consequence of another's; kUnknown if its function threw. kInvalidArgument: a distributed
  // argument with more or fewer components than local replicas. Cross-replica.
  absl::StatusOr<Value> Run(const ReplicaFn& fn, absl::Span<const Value> args = {});

  // Reduces over the replicas of all workers. With axes, each replica's tensor is first reduced
  // along them, and a mean weights each replica by its number of elements (a replica without
  // elements has weight 0; with no elements at all, the mean is NaN). Without axes, replicas have
  // equal weight, and the value of a single replica is returned unchanged. Other means of integers
  // are float64. A value that is not distributed counts as every replica's. Structures are reduced
  // leaf by leaf. Cross-replica. kInvalidArgument: shapes differ, an axis is out of range, the sum
  // of a value that is not distributed, or a number of components that differs from the number of
  // local replicas.
  virtual absl::StatusOr<Value> Reduce(ReduceOp op, const Value& value, const Axes& axes);

  // Concatenates the replicas' tensors along `axis`. A tensor that is not distributed is returned
  // as it is; with several workers, the tensor of each worker is gathered once. Errors as
  // AllGather's. Cross-replica.
  virtual absl::StatusOr<Value> Gather(const Value& value, int64_t axis);

  // The local components of distributed values, of variables with a copy for each replica, and of
  // structures: one entry for each local replica; for a structure, the entry is the structure as
  // that replica holds it. Any other value is its own single entry.
  absl::StatusOr<std::vector<Value>> LocalResults(const Value& value) const;

  // Calls `fn` for each local replica. Returns a PerReplica of the results, or, if they are
  // structures, one structure with a PerReplica of each leaf (RegroupAsPerReplica); with one local
  // replica, its result. kInvalidArgument: the structures differ. Cross-replica.
  absl::StatusOr<Value> DistributeValuesFromFunction(const ValueFunction<const ValueContext&>& fn);

  // Divides the global batches of `dataset`, or the datasets that `function` makes for each worker,
  // among workers and replicas (rules and errors: distributed_dataset.h). Cross-replica.
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
  // UpdateReplicaId() is set during the call. In a replica function, this is a merge call.
  // kInvalidArgument: a plain variable of no strategy, or a distributed argument with more or fewer
  // components than local replicas. Returns the regrouped results. Other threads' writes that reach
  // all copies of an ON_WRITE variable come before the first or after the last of these calls, so
  // `fn` must not wait for a thread that writes `variable`. This does not hold for variables that
  // `fn` itself updates or writes, except `variable`.
  using UpdateFn = ValueFunction<const VariablePtr&, absl::Span<const Value>>;
  absl::StatusOr<Value> Update(const VariablePtr& variable, const UpdateFn& fn,
                               absl::Span<const Value> args = {});
  // Calls `fn` once for each device, in an update; device i gets component i of each argument.
  // kInvalidArgument: a distributed argument with fewer components than devices.
  absl::StatusOr<Value> UpdateNonSlot(absl::Span<const Device> devices, const ReplicaFn& fn,
                                      absl::Span<const Value> args = {});

  // Whether `variable` was made under this strategy; false for null.
  bool VariableCreatedInScope(const VariablePtr& variable) const;
  // Makes a variable on the devices of `beside`. Must be called in this strategy's scope or replica
  // function. kInvalidArgument: `beside` belongs to another strategy.
  absl::StatusOr<VariablePtr> CreateVariableBeside(const VariablePtr& beside,
                                                   const VariableOptions& options);

  // --- For strategies ---

  // Makes a variable; called once for all replicas. `options` has synchronization and trainable as
  // the user gave them; `beside` is null or a variable of this strategy.
  virtual absl::StatusOr<VariablePtr> MakeVariable(const VariableOptions& options,
                                                   const VariablePtr& beside) = 0;

  // `value` as the local replicas have it: a variable of this strategy with one copy for each of
  // them becomes PerReplica (kOnRead) or Mirrored (otherwise) of its copies; any other value stays
  // as it is. kInvalidArgument: a null variable, or a number of components that differs from the
  // number of local replicas; the message begins with `method`.
  absl::StatusOr<Value> Components(absl::string_view method, const Value& value) const;
  // What each local replica i gave as of_replicas[i]: its own component of a distributed value or
  // variable, or the value itself.
  absl::StatusOr<Value::Sequence> OwnComponents(absl::string_view method,
                                                absl::Span<const Value> of_replicas) const;
  // The first worker's `initial`, for variables with copies on every worker.
  virtual absl::StatusOr<Tensor> FirstValue(const Tensor& initial) { return initial; }
  // Sums or averages several values at once over all replicas of all workers: `locals[v]` holds the
  // tensor (or slices) of value v for each local replica. Returns one result for each value, with
  // the same bits in every process: a tensor or slices, or Mirrored tensors if the result already
  // is on several devices (SpreadOver takes both). Called in cross-replica context. The default
  // works within one process.
  virtual absl::StatusOr<std::vector<Value>> ReduceAll(ReduceOp op,
                                                       absl::Span<const Value::Sequence> locals,
                                                       const CommunicationOptions& options);
  // Takes this worker's place in the collective that the other workers have called or will call
  // next, where it refuses its values: that call fails on every other worker with `why`. Called
  // instead of ReduceAll, ReducePlain, GatherAll, BroadcastFirst or FirstValue.
  virtual void RefuseCollective(const absl::Status& /*why*/) {}
  // ReduceAll of one value, onto `devices` of this process.
  absl::StatusOr<std::vector<Value>> ReduceOnto(ReduceOp op, absl::Span<const Value> locals,
                                                absl::Span<const Device> devices);
  // Reduces a value that is not distributed. By default a mean, a host zero, or the value of a
  // single replica is returned unchanged; other sums are kInvalidArgument.
  virtual absl::StatusOr<Value> ReducePlain(ReduceOp op, const Value& value);
  // How datasets are divided.
  virtual InputStrategy input_strategy();
  // The component of `value` on the first replica of all workers. Every worker must call it; if the
  // first worker's component is no tensor or slices, it is an error on all.
  virtual absl::StatusOr<Value> BroadcastFirst(const Value& value) {
    return SelectReplica(value, 0);
  }
  // Concatenates the tensors of all replicas of all workers along `axis`, as ReduceAll reduces
  // them.
  virtual absl::StatusOr<Tensor> GatherAll(absl::Span<const Value> locals, int64_t axis,
                                           const CommunicationOptions& options);

  // Called at the end of each Run, in its thread, with the status that Run returns.
  virtual void RunEnded(const absl::Status& /*status*/) {}

  // kFailedPrecondition unless called in cross-replica context or outside every scope.
  // kInvalidArgument: a device with a negative number.
  absl::Status CheckCrossReplica(absl::string_view method) const;

 protected:
  // One replica for each device, at least one. Derived classes check `worker_devices`
  // (CheckDevices).
  explicit Strategy(std::vector<Device> worker_devices);

 private:
  absl::StatusOr<Value> ReduceAxes(ReduceOp op, const Value& value, absl::Span<const int64_t> axes);
  absl::StatusOr<Value> RunOne(const ReplicaFn& fn, absl::Span<const Value> args);
  absl::StatusOr<Value> RunReplicas(const ReplicaFn& fn, absl::Span<const Value> args);
  absl::StatusOr<Value> UpdateCopies(const VariablePtr& variable, const UpdateFn& fn,
                                     absl::Span<const Value> args);

  // kInvalidArgument: a distributed value in `value` does not have one component per local replica.
  absl::Status CheckComponents(absl::string_view method, const Value& value) const;

  const std::vector<Device> worker_devices_;
  std::unique_ptr<ReplicaThreads> threads_;
  StrategyHandle handle_;
};

// kInvalidArgument, with a message that begins with `who`: no device, a duplicate, or a negative
// number.
absl::Status CheckDevices(absl::string_view who, absl::Span<const Device> devices);

// The strategy outside every scope: one replica on cpu:0, plain variables. Never destroyed.
Strategy& DefaultStrategy();

}  // namespace cairn
