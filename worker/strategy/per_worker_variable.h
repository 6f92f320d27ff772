// One variable on each worker of a parameter server strategy.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/strategy/plain_variable.h"

namespace cairn {

// A function that a coordinator schedules reads and writes its own worker's copy. Elsewhere reads
// and writes are kFailedPrecondition.
class PerWorkerVariable : public VariableBase {
 public:
  // Every worker's copy starts as `initial`. `workers` is at least 1.
  PerWorkerVariable(VariableTraits traits, const Tensor& initial, int32_t workers);

  absl::StatusOr<Tensor> Read() override;
  absl::Status Write(AssignOp op, const Value& value) override;
  absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) override;

  // Every worker's value, in worker order. May be called anywhere.
  absl::StatusOr<std::vector<Tensor>> ReadAll();

 private:
  absl::StatusOr<VariablePtr> Own(absl::string_view method) const;

  std::vector<VariablePtr> of_worker_;
};

}  // namespace cairn
