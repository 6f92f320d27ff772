#include "worker/strategy/plain_variable.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"

namespace cairn {
namespace {

ElementOp ElementOpOf(AssignOp op) {
  switch (op) {
    case AssignOp::kAssign: return ElementOp::kSet;
    case AssignOp::kAdd: return ElementOp::kAdd;
    case AssignOp::kSub: return ElementOp::kSub;
  }
  return ElementOp::kSet;
}

ElementOp ElementOpOf(ScatterOp op) {
  switch (op) {
    case ScatterOp::kAdd: return ElementOp::kAdd;
    case ScatterOp::kSub: return ElementOp::kSub;
    case ScatterOp::kMul: return ElementOp::kMul;
    case ScatterOp::kDiv: return ElementOp::kDiv;
    case ScatterOp::kMin: return ElementOp::kMin;
    case ScatterOp::kMax: return ElementOp::kMax;
    case ScatterOp::kUpdate: return ElementOp::kSet;
  }
  return ElementOp::kSet;
}

// Whether an integer dtype can hold `number` without its fraction.
bool Holds(DType dtype, double number) {
  if (dtype == DType::kInt32) return number > -0x1p31 - 1 && number < 0x1p31;
  return number >= -0x1p63 && number < 0x1p63;
}

// kInvalidArgument: `value` has a host number that the integer dtype of `variable` cannot hold.
absl::Status CheckHostNumbers(const Variable& variable, const Value& value,
                              absl::string_view what) {
  if (IsFloating(variable.dtype())) return absl::OkStatus();
  std::vector<double> numbers;
  if (value.is_host_number()) numbers = {value.number()};
  if (value.kind() == Value::Kind::kArray) numbers = value.array().ToDoubles();
  // An integer needs no check for int64, and its double may be rounded up to 2^63.
  if (value.kind() == Value::Kind::kInteger && variable.dtype() == DType::kInt64) return {};
  for (const double number : numbers) {
    if (Holds(variable.dtype(), number)) continue;
    return InvalidArgument(what, " variable \"", variable.name(), "\": ", number,
                           " is outside the range of ", DTypeName(variable.dtype()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view SynchronizationName(VariableSynchronization synchronization) {
  switch (synchronization) {
    case VariableSynchronization::kAuto: return "AUTO";
    case VariableSynchronization::kNone: return "NONE";
    case VariableSynchronization::kOnWrite: return "ON_WRITE";
    case VariableSynchronization::kOnRead: return "ON_READ";
  }
  return "unknown";
}

absl::string_view AggregationName(VariableAggregation aggregation) {
  switch (aggregation) {
    case VariableAggregation::kNone: return "NONE";
    case VariableAggregation::kSum: return "SUM";
    case VariableAggregation::kMean: return "MEAN";
    case VariableAggregation::kOnlyFirstReplica: return "ONLY_FIRST_REPLICA";
  }
  return "unknown";
}

absl::string_view AssignOpName(AssignOp op) {
  switch (op) {
    case AssignOp::kAssign: return "assign";
    case AssignOp::kAdd: return "assign_add";
    case AssignOp::kSub: return "assign_sub";
  }
  return "unknown";
}

absl::string_view ScatterOpName(ScatterOp op) {
  switch (op) {
    case ScatterOp::kAdd: return "scatter_add";
    case ScatterOp::kSub: return "scatter_sub";
    case ScatterOp::kMul: return "scatter_mul";
    case ScatterOp::kDiv: return "scatter_div";
    case ScatterOp::kMin: return "scatter_min";
    case ScatterOp::kMax: return "scatter_max";
    case ScatterOp::kUpdate: return "scatter_update";
  }
  return "unknown";
}

Tensor NoInitialValue() {
  static const Tensor* const none = new Tensor();
  return *none;
}

absl::Status CheckVariable(absl::string_view method, const VariablePtr& variable) {
  if (variable != nullptr) return Annotate(variable->CheckUsable(), method);
  return InvalidArgument(
      method, ": the variable is null; check what CreateVariable returned before using it");
}

absl::Status VariableBase::CheckUsable() const {
  if (!traits_.strategy.is_destroyed()) return absl::OkStatus();
  return FailedPrecondition(
      "variable \"", name(),
      "\": the strategy that made it was destroyed; keep it as long as its variables "
      "are used");
}

absl::StatusOr<Tensor> Variable::ReadRows(absl::Span<const int64_t> rows) {
  RETURN_IF_ERROR(CheckRows(*this, rows));
  ASSIGN_OR_RETURN(const Tensor whole, Read());
  return TakeRows(whole, rows);
}

absl::StatusOr<Tensor> RowNumbers(absl::string_view called, const Tensor& indices) {
  if (indices.is_text() || IsFloating(indices.dtype()) || indices.rank() != 1) {
    return InvalidArgument(called, ": its rows are given as ", indices.TypeText(),
                           "; allowed is int64 [n]");
  }
  ASSIGN_OR_RETURN(const Tensor host, HostTensor(indices));
  return CastTensor(host, DType::kInt64);
}

absl::Status CheckRows(const Variable& variable, absl::Span<const int64_t> rows) {
  if (variable.shape().empty()) {
    return InvalidArgument("rows of variable \"", variable.name(),
                           "\": it is a scalar, without rows");
  }
  const int64_t count = variable.shape()[0];
  for (const int64_t row : rows) {
    if (row >= 0 && row < count) continue;
    return InvalidArgument("rows of variable \"", variable.name(), "\": row ", row,
                           " is outside [0, ", count, ")");
  }
  return absl::OkStatus();
}

VariableTraits TraitsOf(const VariableOptions& options, const Tensor& initial, Device device,
                        Strategy* strategy) {
  return {.name = options.name,
          .dtype = initial.dtype(),
          .shape = initial.shape(),
          .device = device,
          .trainable = options.trainable.value_or(options.synchronization !=
                                                  VariableSynchronization::kOnRead),
          .synchronization = options.synchronization,
          .aggregation = options.aggregation,
          .strategy = strategy};
}

absl::StatusOr<Tensor> VariableOn(absl::string_view name, const Tensor& initial, Device device) {
  absl::StatusOr<Tensor> copy = CopyTensor(initial, device);
  RETURN_IF_ERROR(Annotate(copy.status(), absl::StrCat("variable \"", name, "\"")));
  return copy;
}

absl::StatusOr<Tensor> TensorFor(const Variable& variable, const Value& value,
                                 absl::string_view what) {
  RETURN_IF_ERROR(CheckHostNumbers(variable, value, what));
  if (value.is_host_number() && variable.shape().empty()) {
    if (value.kind() == Value::Kind::kNumber || IsFloating(variable.dtype())) {
      return FullTensor(variable.dtype(), {}, value.number(), variable.device());
    }
    ASSIGN_OR_RETURN(const Tensor exact,
                     CastTensor(Tensor::Scalar<int64_t>(value.integer()), variable.dtype()));
    return TensorOn(variable.device(), exact);
  }
  absl::StatusOr<Tensor> read = value.ToTensor();
  if (!read.ok()) {
    return Annotate(read.status(), absl::StrCat(what, " variable \"", variable.name(), "\""));
  }
  Tensor tensor = *std::move(read);
  if (value.kind() == Value::Kind::kArray) {
    ASSIGN_OR_RETURN(tensor, CastTensor(tensor, variable.dtype()));
  }
  if (tensor.is_text() || tensor.dtype() != variable.dtype() ||
      tensor.shape() != variable.shape()) {
    return InvalidArgument(what, " variable \"", variable.name(), "\": found ", value.TypeText(),
                           ", expected ", DTypeName(variable.dtype()), " ",
                           ShapeText(variable.shape()));
  }
  return tensor;
}

PlainVariable::PlainVariable(VariableTraits traits, Tensor initial)
    : VariableBase(std::move(traits)), tensor_(std::move(initial)) {}

VariablePtr PlainVariable::container() {
  VariablePtr container = container_.lock();
  return container != nullptr ? container : shared_from_this();
}

absl::StatusOr<Tensor> PlainVariable::Read() {
  absl::MutexLock lock(&mutex_);
  return CopyTensor(tensor_, device());
}

absl::Status PlainVariable::Write(AssignOp op, const Value& value) {
  ASSIGN_OR_RETURN(const Tensor tensor, TensorFor(*this, value));
  absl::MutexLock lock(&mutex_);
  return ApplyElements(ElementOpOf(op), tensor, &tensor_);
}

absl::Status PlainVariable::Change(absl::FunctionRef<absl::Status(Tensor*)> fn) {
  absl::MutexLock lock(&mutex_);
  return fn(&tensor_);
}

absl::Status PlainVariable::Scatter(ScatterOp op, const IndexedSlices& slices) {
  absl::MutexLock lock(&mutex_);
  return Annotate(ApplyRows(ElementOpOf(op), slices.indices, slices.values, &tensor_),
                  absl::StrCat(ScatterOpName(op), " of variable \"", name(), "\""));
}

}  // namespace cairn
