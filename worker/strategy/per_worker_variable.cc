#include "worker/strategy/per_worker_variable.h"

#include <cstddef>
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/strategy/worker_scope.h"

namespace cairn {

PerWorkerVariable::PerWorkerVariable(VariableTraits traits, const Tensor& initial, int32_t workers)
    : VariableBase(std::move(traits)) {
  for (int32_t i = 0; i < workers; ++i) {
    of_worker_.push_back(std::make_shared<PlainVariable>(this->traits(), initial.Copy()));
  }
}

absl::StatusOr<VariablePtr> PerWorkerVariable::Own(absl::string_view method) const {
  const std::optional<int32_t> worker = CurrentWorker();
  if (worker && static_cast<size_t>(*worker) < of_worker_.size()) {
    return of_worker_[static_cast<size_t>(*worker)];
  }
  return FailedPrecondition(
      method, " of variable \"", name(),
      "\", which every worker has for itself, outside a scheduled function: call it in "
      "one, or ReadAll");
}

absl::StatusOr<Tensor> PerWorkerVariable::Read() {
  ASSIGN_OR_RETURN(const VariablePtr own, Own("read"));
  return own->Read();
}

absl::Status PerWorkerVariable::Write(AssignOp op, const Value& value) {
  ASSIGN_OR_RETURN(const VariablePtr own, Own(AssignOpName(op)));
  return own->Write(op, value);
}

absl::Status PerWorkerVariable::Scatter(ScatterOp op, const IndexedSlices& slices) {
  ASSIGN_OR_RETURN(const VariablePtr own, Own(ScatterOpName(op)));
  return own->Scatter(op, slices);
}

absl::StatusOr<std::vector<Tensor>> PerWorkerVariable::ReadAll() {
  std::vector<Tensor> values;
  for (const VariablePtr& variable : of_worker_) {
    ASSIGN_OR_RETURN(values.emplace_back(), variable->Read());
  }
  return values;
}

}  // namespace cairn
