#include "worker/strategy/mirrored_strategy.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/strategy/distributed_variable.h"

namespace cairn {

absl::Status CheckReplicated(const VariableOptions& options) {
  if (options.synchronization == VariableSynchronization::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable \"", options.name,
                     "\": synchronization NONE is not supported where there are copies; allowed "
                     "are AUTO, ON_WRITE and ON_READ"));
  }
  if (SynchronizationName(options.synchronization) == "unknown" ||
      AggregationName(options.aggregation) == "unknown") {
    return absl::InvalidArgumentError(absl::StrCat("variable \"", options.name,
                                                   "\": synchronization or aggregation is none of "
                                                   "the enumerators"));
  }
  const DType dtype = options.initial_value.dtype();
  if (options.aggregation == VariableAggregation::kMean && !IsFloating(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("variable \"", options.name,
                                                   "\": aggregation MEAN of ", DTypeName(dtype),
                                                   " is not supported; use a floating dtype"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MirroredStrategy>> MirroredStrategy::Create(
    std::vector<Device> devices) {
  RETURN_IF_ERROR(CheckDevices("MirroredStrategy", devices));
  return std::unique_ptr<MirroredStrategy>(new MirroredStrategy(std::move(devices)));
}

absl::StatusOr<std::unique_ptr<MirroredStrategy>> MirroredStrategy::Create(
    absl::Span<const std::string> devices) {
  size_t remote = 0;
  for (const std::string& text : devices) {
    const bool job = absl::StartsWith(text, "/job:") && !absl::StartsWith(text, "/job:localhost");
    remote += job ? 1 : 0;
  }
  if (remote == devices.size() && remote > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("MirroredStrategy: ", devices[0],
                     " and the others are devices of other tasks;"
                     " it works inside one process: use MultiWorkerMirroredStrategy"));
  }
  if (remote > 0) {
    return absl::InvalidArgumentError(
        "MirroredStrategy: local devices and those of other tasks are mixed; name local ones");
  }
  std::vector<Device> parsed;
  for (const std::string& text : devices) {
    ASSIGN_OR_RETURN(const Device device, ParseDevice(text));
    parsed.push_back(device);
  }
  return Create(std::move(parsed));
}

InputStrategy MirroredStrategy::input_strategy() {
  InputStrategy input = Strategy::input_strategy();
  input.partial_steps = true;
  input.per_replica = InputStrategy::PerReplica::kSupported;
  return input;
}

absl::StatusOr<VariablePtr> MirroredStrategy::MakeVariable(const VariableOptions& options,
                                                           const VariablePtr& /*beside*/) {
  RETURN_IF_ERROR(CheckReplicated(options));
  const bool on_read = options.synchronization == VariableSynchronization::kOnRead;
  VariableOptions known = options;
  if (!on_read) known.synchronization = VariableSynchronization::kOnWrite;
  ASSIGN_OR_RETURN(const Tensor initial, FirstValue(options.initial_value));
  std::vector<VariablePtr> copies;
  for (const Device device : worker_devices()) {
    VariableTraits traits = TraitsOf(known, initial, device, nullptr);
    if (!copies.empty()) absl::StrAppend(&traits.name, "/replica_", copies.size());
    ASSIGN_OR_RETURN(Tensor copy, VariableOn(options.name, initial, device));
    copies.push_back(std::make_shared<PlainVariable>(std::move(traits), std::move(copy)));
  }
  VariableTraits traits = TraitsOf(known, initial, worker_devices()[0], this);
  if (on_read) {
    return std::make_shared<SyncOnReadVariable>(std::move(traits), std::move(copies));
  }
  return std::make_shared<MirroredVariable>(std::move(traits), std::move(copies));
}

}  // namespace cairn
