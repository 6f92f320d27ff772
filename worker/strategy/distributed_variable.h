// Variables with one copy on each replica's device, and variables with one copy that all replicas
// write.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "worker/strategy/context.h"
#include "worker/strategy/plain_variable.h"
#include "worker/strategy/strategy.h"

namespace cairn {

// The context in which a variable's method was called, as far as its rules distinguish contexts.
struct Place {
  enum class Kind { kCross, kReplica, kUpdate };
  Kind kind = Kind::kCross;
  int32_t copy = 0;                         // kReplica, kUpdate: in [0, number of copies)
  std::shared_ptr<ReplicaContext> context;  // kReplica
};

// The place of a call to `variable`, which a strategy made; that strategy must live until the call
// returns. kFailedPrecondition: this thread is in another strategy's scope or replica function, or
// the strategy was destroyed; or it is in the update of a copy or device whose index is not below
// the variable's number of copies (a variable with one copy has it in every update). `method`
// appears in the message.
absl::StatusOr<Place> PlaceOf(Variable& variable, absl::string_view method);

// The value to store after every replica has written `value` (regrouped) in its replica function.
// A variable counts as its copies: one for each replica if they may differ (kOnRead), otherwise one
// value that all replicas share. A value that only the replicas of this worker share counts for
// each of them. Called in cross-replica context. kInvalidArgument: the sum of one value that
// replicas share; the mean of integers.
absl::StatusOr<Value> AggregateWrite(Strategy& strategy, const Variable& variable,
                                     const Value& value, absl::Span<const Device> devices);

// Copies that are written together (synchronization kOnWrite): tf.distribute's MirroredVariable.
class MirroredVariable : public VariableBase {
 public:
  // `copies` has one copy for each local replica, in replica order.
  MirroredVariable(VariableTraits traits, std::vector<VariablePtr> copies);

  std::vector<VariablePtr> components() override { return copies_; }
  absl::StatusOr<Tensor> Read() override;
  absl::Status Write(AssignOp op, const Value& value) override;
  absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) override;
  // Calls `fn`, which writes to copies through components(), while no other write runs that reaches
  // all copies. `fn` must not write this variable in any other way, nor wait for other workers.
  absl::Status WriteTogether(absl::FunctionRef<absl::Status()> fn);

 private:
  // As WriteTogether, for a function of the program, which may do anything in this thread: until
  // `fn` returns, the thread's writes, to this and to other variables, exclude no other thread's,
  // because a thread that holds the lock of one variable must not wait for another's. `fn` must not
  // wait for another thread that writes this variable.
  absl::Status UpdateTogether(absl::FunctionRef<absl::Status()> fn) override;
  // Writes to each copy its component of `value`.
  absl::Status WriteAll(AssignOp op, const Value& value);
  absl::Status ScatterAll(ScatterOp op, const IndexedSlices& slices);
  absl::Status ScatterInReplica(const Place& place, ScatterOp op, const IndexedSlices& slices);

  const std::vector<VariablePtr> copies_;
  // Held while all copies are written, so that concurrent writes reach them in one order. Not held
  // during the strategy's own collectives. Acquired before the locks of the copies; a thread that
  // holds several (VariableOptimizer) acquires them in the order of their addresses.
  absl::Mutex writes_;
};

// Copies that replicas write independently; a read in cross-replica context aggregates them:
// tf.distribute's SyncOnReadVariable.
class SyncOnReadVariable : public VariableBase {
 public:
  SyncOnReadVariable(VariableTraits traits, std::vector<VariablePtr> copies);

  std::vector<VariablePtr> components() override { return copies_; }
  absl::StatusOr<Tensor> Read() override;
  absl::Status Write(AssignOp op, const Value& value) override;
  absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) override;

 private:
  const std::vector<VariablePtr> copies_;
  absl::Mutex writes_;  // held while all copies are read or written, as MirroredVariable's
};

// One copy; replicas' writes are aggregated before they reach it: tf.distribute's
// AggregatingVariable.
class AggregatingVariable : public VariableBase {
 public:
  AggregatingVariable(VariableTraits traits, VariablePtr copy);

  std::vector<VariablePtr> components() override { return {copy_}; }
  absl::StatusOr<Tensor> Read() override;
  absl::StatusOr<Tensor> ReadRows(absl::Span<const int64_t> rows) override;
  absl::Status Write(AssignOp op, const Value& value) override;
  absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) override;

 private:
  const VariablePtr copy_;
};

}  // namespace cairn
