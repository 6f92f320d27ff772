// Variables as in tf.distribute: created under a strategy, read and written by its rules.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "common/tensor.h"
#include "worker/strategy/value.h"

namespace cairn {

class Strategy;

// When the copies of a variable are made equal. kAuto means kOnWrite if the variable has copies.
enum class VariableSynchronization { kAuto, kNone, kOnWrite, kOnRead };
// How the replicas' writes (kOnWrite) or copies (kOnRead) become one value.
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

absl::string_view SynchronizationName(VariableSynchronization synchronization);  // "ON_READ"
absl::string_view AggregationName(VariableAggregation aggregation);  // "ONLY_FIRST_REPLICA"

// The default of VariableOptions::initial_value: no value.
Tensor NoInitialValue();

struct VariableOptions {
  std::string name = "Variable";
  // Value of the first copy, which the other copies take over. `initializer` is called once, where
  // the variable is made; without an initializer, `initial_value` is used. One of them must be
  // given.
  Tensor initial_value = NoInitialValue();
  std::function<absl::StatusOr<Tensor>()> initializer = {};
  std::optional<bool> trainable = {};  // default: synchronization is not kOnRead
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
  // One variable on each worker instead of one on the servers; only for ParameterServerStrategy.
  bool per_worker = false;
};

enum class AssignOp { kAssign, kAdd, kSub };
enum class ScatterOp { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };

absl::string_view AssignOpName(AssignOp op);    // "assign_add"
absl::string_view ScatterOpName(ScatterOp op);  // "scatter_update"

// A variable: one tensor, or one copy of it for each replica. What a read or write does depends on
// the context of the call: a replica function, cross-replica context, or an update (context.h).
//
// Values to write are host numbers, tensors or distributed values. Host numbers are cast to the
// variable's dtype, and refused if they are outside the range of an integer dtype; tensors must
// have the variable's dtype and shape.
//
// Thread safety: every method may be called from several threads at once; no reader sees half a
// write.
class Variable : public std::enable_shared_from_this<Variable> {
 public:
  virtual ~Variable() = default;

  virtual const std::string& name() const = 0;
  virtual DType dtype() const = 0;
  virtual const Shape& shape() const = 0;
  virtual Device device() const = 0;  // of the first copy
  virtual bool trainable() const = 0;
  virtual VariableSynchronization synchronization() const = 0;
  virtual VariableAggregation aggregation() const = 0;
  // The strategy that made the variable; null for a plain variable, and after the strategy's
  // destruction.
  virtual Strategy* strategy() const { return nullptr; }
  // kFailedPrecondition: the strategy was destroyed. Calls that need the strategy also return this
  // error.
  virtual absl::Status CheckUsable() const { return absl::OkStatus(); }
  // The copies on this process's devices, each a plain variable; for a plain variable, itself.
  virtual std::vector<VariablePtr> components() { return {shared_from_this()}; }
  // The variable that has this one among its components(), as long as it exists; otherwise this
  // variable itself.
  virtual VariablePtr container() { return shared_from_this(); }

  // The value as the calling context sees it, in new memory.
  virtual absl::StatusOr<Tensor> Read() = 0;
  // Rows `rows` along axis 0, in any order, repeats allowed: [rows.size(), rest of shape()].
  // kInvalidArgument: a row out of range, or a scalar variable.
  virtual absl::StatusOr<Tensor> ReadRows(absl::Span<const int64_t> rows);

  // kInvalidArgument: wrong shape or dtype, or a value that cannot be aggregated.
  // kFailedPrecondition: another strategy's scope or replica function is current.
  virtual absl::Status Write(AssignOp op, const Value& value) = 0;
  absl::Status Assign(const Value& value) { return Write(AssignOp::kAssign, value); }
  absl::Status AssignAdd(const Value& value) { return Write(AssignOp::kAdd, value); }
  absl::Status AssignSub(const Value& value) { return Write(AssignOp::kSub, value); }

  // Writes rows. kUnimplemented: `op` is not supported for this synchronization and aggregation.
  // kInvalidArgument: also a row out of range, in which case nothing is written.
  virtual absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) = 0;

 private:
  friend class Strategy;
  // Calls `fn`, which updates one copy after the other. If the copies are kept equal (kOnWrite),
  // other threads' writes that reach all of them wait until `fn` returns.
  virtual absl::Status UpdateTogether(absl::FunctionRef<absl::Status()> fn) { return fn(); }
};

// Calls Variable::CheckUsable. kInvalidArgument: `variable` is null. Messages begin with `method`.
absl::Status CheckVariable(absl::string_view method, const VariablePtr& variable);

// Makes a variable under the current strategy; never returns null. Call it in the strategy's scope,
// or in a replica function, where every replica must make the same variables in the same order.
// kInvalidArgument: neither an initial value nor an initializer, or a synchronization or
// aggregation that the strategy does not support for this dtype. kFailedPrecondition: names that
// differ between the replicas. kUnknown: the initializer or a variable creator threw an exception.
absl::StatusOr<VariablePtr> CreateVariable(const VariableOptions& options);

// During its lifetime, CreateVariable in this thread calls `creator`, which may change the options
// and calls `next`, or makes a variable itself. CreateVariable inside the creator calls only the
// outer creators. The innermost creator is called first. A scope may be destroyed in another
// thread, or before a scope inside it.
class VariableCreatorScope {
 public:
  using Next = std::function<absl::StatusOr<VariablePtr>(const VariableOptions&)>;
  using Creator = std::function<absl::StatusOr<VariablePtr>(const Next&, const VariableOptions&)>;
  explicit VariableCreatorScope(Creator creator);
  ~VariableCreatorScope();
  VariableCreatorScope(const VariableCreatorScope&) = delete;
  VariableCreatorScope& operator=(const VariableCreatorScope&) = delete;

 private:
  const std::shared_ptr<std::atomic<bool>> left_;
};

}  // namespace cairn
