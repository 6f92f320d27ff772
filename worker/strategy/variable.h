// Variables of the tf.distribute kind: created under a strategy, read and written by its rules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "common/tensor.h"
#include "worker/strategy/value.h"

namespace cairn {

class Strategy;

// When the copies of a variable are made equal. kAuto is kOnWrite where there are copies.
enum class VariableSynchronization { kAuto, kNone, kOnWrite, kOnRead };
// How the replicas' writes (kOnWrite) or copies (kOnRead) become one value.
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

absl::string_view SynchronizationName(VariableSynchronization synchronization);  // "ON_READ"
absl::string_view AggregationName(VariableAggregation aggregation);  // "ONLY_FIRST_REPLICA"

struct VariableOptions {
  std::string name = "Variable";
  // The first copy's value; the other copies take that one. `initializer` is called once, where
  // the variable is made; without one, `initial_value` is taken.
  Tensor initial_value;
  std::function<absl::StatusOr<Tensor>()> initializer;
  std::optional<bool> trainable;  // default: synchronization is not kOnRead
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
  // One variable on each worker, not one on the servers: ParameterServerStrategy alone.
  bool per_worker = false;
};

enum class AssignOp { kAssign, kAdd, kSub };
enum class ScatterOp { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };

absl::string_view AssignOpName(AssignOp op);    // "assign_add"
absl::string_view ScatterOpName(ScatterOp op);  // "scatter_update"

// A variable: one tensor, or one copy of it for each replica. What a read or write does depends on
// where it is called: in a replica function, in cross-replica context, in an update (context.h).
//
// Values to write are host numbers, tensors or distributed values; they are cast to the variable's
// dtype if they are host numbers, and must have it, and its shape, if they are tensors.
//
// Thread safety: every method may be called from several threads at once; a write is seen whole.
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
  // The strategy that made it; null for a plain variable.
  virtual Strategy* strategy() const { return nullptr; }
  // Its copies on this process' devices, each a plain variable; for a plain one, itself.
  virtual std::vector<VariablePtr> components() { return {shared_from_this()}; }

  // The value as seen from here, with memory of its own.
  virtual absl::StatusOr<Tensor> Read() = 0;
  // Rows `rows` along axis 0, in any order, repeats allowed: [rows.size(), rest of shape()].
  // kInvalidArgument: a row out of range, a scalar.
  virtual absl::StatusOr<Tensor> ReadRows(absl::Span<const int64_t> rows);

  // kInvalidArgument: wrong shape or dtype, or a value that cannot be aggregated.
  // kFailedPrecondition: another strategy's scope or replica function is current.
  virtual absl::Status Write(AssignOp op, const Value& value) = 0;
  absl::Status Assign(const Value& value) { return Write(AssignOp::kAssign, value); }
  absl::Status AssignAdd(const Value& value) { return Write(AssignOp::kAdd, value); }
  absl::Status AssignSub(const Value& value) { return Write(AssignOp::kSub, value); }

  // Writes rows. kUnimplemented: not for this synchronization, aggregation and `op`.
  // kInvalidArgument: also a row out of range; then nothing is written.
  virtual absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) = 0;
};

// Makes a variable under the current strategy (in its scope, or in a replica function, where every
// replica must make the same ones in the same order). kInvalidArgument: a synchronization or
// aggregation that the strategy does not know for this dtype; kFailedPrecondition: names that
// differ between the replicas.
absl::StatusOr<VariablePtr> CreateVariable(const VariableOptions& options);

// While it lives, CreateVariable in this thread goes through `creator`, which may change the
// options and calls `next`, or makes a variable of its own; the innermost is called first.
class VariableCreatorScope {
 public:
  using Next = std::function<absl::StatusOr<VariablePtr>(const VariableOptions&)>;
  using Creator = std::function<absl::StatusOr<VariablePtr>(const Next&, const VariableOptions&)>;
  explicit VariableCreatorScope(Creator creator);
  ~VariableCreatorScope();
  VariableCreatorScope(const VariableCreatorScope&) = delete;
  VariableCreatorScope& operator=(const VariableCreatorScope&) = delete;

 private:
  size_t depth_;
};

}  // namespace cairn
