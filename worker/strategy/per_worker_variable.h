// One variable on each worker of a parameter server strategy.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/strategy/plain_variable.h"

namespace cairn {

// What a function that a coordinator calls reads and writes is its own worker's copy; elsewhere a
// read or write is kFailedPrecondition.
class PerWorkerVariable : public VariableBase {
 public:
  // Each worker's copy starts as `initial`; at least one worker.
  PerWorkerVariable(VariableTraits traits, const Tensor& initial, int32_t workers);

  absl::StatusOr<Tensor> Read() override;
  absl::Status Write(AssignOp op, const Value& value) override;
  absl::Status Scatter(ScatterOp op, const IndexedSlices& slices) override;

  // Every worker's value, in their order; from anywhere.
  absl::StatusOr<std::vector<Tensor>> ReadAll();

 private:
  absl::StatusOr<VariablePtr> Own(absl::string_view method) const;

  std::vector<VariablePtr> of_worker_;
};

}  // namespace cairn
