// The dataset methods of Strategy.
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/strategy.h"

namespace cairn {

Value StepValue(absl::Span<const Element> of_replicas) {
  Value::Sequence values;
  for (const Element& element : of_replicas) {
    if (element.size() == 1) {
      values.emplace_back(element[0]);
      continue;
    }
    values.push_back(Value::Tuple({element.begin(), element.end()}));
  }
  if (values.empty()) return Value::PerReplica({});
  if (values.size() == 1) return std::move(values[0]);
  absl::StatusOr<Value> step = RegroupAsPerReplica(values);
  return step.ok() ? *std::move(step) : Value::PerReplica(std::move(values));
}

InputStrategy Strategy::input_strategy() {
  InputStrategy input;
  input.workers = workers();
  input.worker = worker_index();
  input.local_replicas = local_replicas();
  input.splits = num_replicas_in_sync() > 1;
  input.check = [handle = handle()]() -> absl::Status {
    const Strategy* const strategy = handle.get();
    if (strategy == nullptr) {
      return FailedPrecondition(
          "Next of a distributed dataset: the strategy that distributes it was destroyed; keep it "
          "as long as its datasets are used");
    }
    if (strategy->is_default()) return absl::OkStatus();
    return Annotate(strategy->CheckCrossReplica("Next"),
                    "Next of a distributed dataset, whose steps are arguments of Run");
  };
  input.devices = worker_devices();
  input.copy_to = CopyTensor;
  return input;
}

absl::StatusOr<DistributedDataset> Strategy::DistributeDataset(const Dataset& dataset,
                                                               const InputOptions& options) {
  RETURN_IF_ERROR(CheckCrossReplica("DistributeDataset"));
  return cairn::DistributeDataset(dataset, input_strategy(), options);
}

absl::StatusOr<DistributedDataset> Strategy::DistributeDatasetsFromFunction(
    const DatasetInputFunction& function, const InputOptions& options) {
  RETURN_IF_ERROR(CheckCrossReplica("DistributeDatasetsFromFunction"));
  if (function == nullptr) return cairn::DistributeDatasetsFromFunction(nullptr, input_strategy());
  // The user's function is not part of a step, so it sees no strategy.
  const auto outside = [&function](const InputContext& context) -> absl::StatusOr<Dataset> {
    absl::StatusOr<Dataset> made = absl::UnknownError("not called");
    RETURN_IF_ERROR(OutsideEveryScope([&] {
      made = function(context);
      return made.status();
    }));
    return made;
  };
  return cairn::DistributeDatasetsFromFunction(outside, input_strategy(), options);
}

}  // namespace cairn
