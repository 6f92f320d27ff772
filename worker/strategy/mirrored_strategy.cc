#include "worker/strategy/mirrored_strategy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/strategy/distributed_variable.h"
#include "worker/strategy/gpu_ranks.h"
#include "worker/strategy/reduce_values.h"

namespace cairn {

absl::Status CheckReplicated(const VariableOptions& options) {
  if (options.synchronization == VariableSynchronization::kNone) {
    return InvalidArgument(
        "variable \"", options.name,
        "\": synchronization NONE is not supported where there are copies; allowed "
        "are AUTO, ON_WRITE and ON_READ");
  }
  const DType dtype = options.initial_value.dtype();
  if (options.aggregation == VariableAggregation::kMean && !IsFloating(dtype)) {
    return InvalidArgument("variable \"", options.name, "\": aggregation MEAN of ",
                           DTypeName(dtype), " is not supported; use a floating dtype");
  }
  return absl::OkStatus();
}

namespace {

// Adds up the two halves of the devices, then the two sums.
absl::StatusOr<Value> HierarchicalSum(absl::Span<const Value> of_devices, int64_t pack) {
  const HierarchicalPlan plan = PlanHierarchicalCopy(static_cast<int>(of_devices.size()), pack);
  const auto sum_of = [&](const std::vector<int>& half) {
    std::vector<Value> values;
    for (const int d : half) values.push_back(of_devices[static_cast<size_t>(d)]);
    return SumValues(values);
  };
  ASSIGN_OR_RETURN(Value sum, sum_of(plan.main_half));
  if (plan.other_half.empty()) return sum;
  ASSIGN_OR_RETURN(Value other, sum_of(plan.other_half));
  if (plan.main_half.front() > plan.other_half.front()) std::swap(sum, other);
  return SumValues({{sum, other}});
}

// Whether all values are tensors.
bool IsDense(absl::Span<const Value> values) {
  return std::ranges::all_of(values, [](const Value& value) {
    return value.kind() == Value::Kind::kTensor && !value.tensor().is_text();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<MirroredStrategy>> MirroredStrategy::Create(
    std::vector<Device> devices, const MirroredOptions& options) {
  RETURN_IF_ERROR(CheckDevices("MirroredStrategy", devices));
  if (options.cross_device_ops == CrossDeviceOps::kRing || options.bytes_per_pack < 0) {
    return absl::InvalidArgumentError(
        "MirroredStrategy: cross_device_ops is NcclAllReduce, HierarchicalCopyAllReduce or "
        "ReductionToOneDevice, and bytes_per_pack >= 0");
  }
  const bool any = !options.cross_device_ops.has_value();
  CrossDeviceOps ops = options.cross_device_ops.value_or(CrossDeviceOps::kNccl);
  if (ops == CrossDeviceOps::kNccl) {
    const absl::Status status = CheckNccl(devices);
    if (!status.ok() && !any) return Annotate(status, "MirroredStrategy: cross_device_ops");
    if (!status.ok()) ops = CrossDeviceOps::kReductionToOneDevice;
  }
  std::unique_ptr<MirroredStrategy> strategy(new MirroredStrategy(std::move(devices)));
  strategy->cross_device_ops_ = ops;
  if (ops == CrossDeviceOps::kNccl) {
    strategy->gpus_ = std::make_unique<GpuAllReduce>(
        strategy->worker_devices(), options.bytes_per_pack,
        std::make_unique<GpuRanks>(strategy->worker_devices(), options.join, /*required=*/true));
  }
  return strategy;
}

absl::StatusOr<std::vector<Value>> MirroredStrategy::ReduceAll(
    ReduceOp op, absl::Span<const Value::Sequence> locals, const CommunicationOptions& options) {
  std::vector<bool> on_gpus;
  for (const Value::Sequence& values : locals) {
    on_gpus.push_back(gpus_ != nullptr && gpus_->CanReduce(values));
  }
  const auto by_nccl = [&](ReplicaValues values) { return gpus_->Reduce(op, values); };
  const auto by_copies = [&](ReplicaValues others) -> absl::StatusOr<std::vector<Value>> {
    if (cross_device_ops_ != CrossDeviceOps::kHierarchicalCopy) {
      return Strategy::ReduceAll(op, others, options);
    }
    std::vector<Value> results;
    for (const Value::Sequence& values : others) {
      const auto pack = static_cast<int64_t>(results.size());
      const bool dense = !values.empty() && IsDense(values);
      ASSIGN_OR_RETURN(Value sum, dense ? HierarchicalSum(values, pack) : SumValues(values));
      ASSIGN_OR_RETURN(results.emplace_back(),
                       OfReplicas(op, std::move(sum), static_cast<int64_t>(values.size())));
    }
    return results;
  };
  return ReduceApart(locals, on_gpus, by_nccl, by_copies);
}

absl::StatusOr<std::unique_ptr<MirroredStrategy>> MirroredStrategy::Create(
    absl::Span<const std::string> devices) {
  size_t remote = 0;
  for (const std::string& text : devices) {
    const bool job = absl::StartsWith(text, "/job:") && !absl::StartsWith(text, "/job:localhost");
    remote += job ? 1 : 0;
  }
  if (remote == devices.size() && remote > 0) {
    return FailedPrecondition("MirroredStrategy: ", devices[0],
                              " and the others are devices of other tasks;"
                              " it works inside one process: use MultiWorkerMirroredStrategy");
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
  if (const absl::Status allowed = CheckReplicated(options); !allowed.ok()) {
    RefuseCollective(allowed);
    return allowed;
  }
  const bool on_read = options.synchronization == VariableSynchronization::kOnRead;
  VariableOptions known = options;
  if (!on_read) known.synchronization = VariableSynchronization::kOnWrite;
  ASSIGN_OR_RETURN(const Tensor initial, FirstValue(options.initial_value));
  std::vector<std::shared_ptr<PlainVariable>> copies;
  for (const Device device : worker_devices()) {
    VariableTraits traits = TraitsOf(known, initial, device, nullptr);
    if (!copies.empty()) absl::StrAppend(&traits.name, "/replica_", copies.size());
    ASSIGN_OR_RETURN(Tensor copy, VariableOn(options.name, initial, device));
    copies.push_back(std::make_shared<PlainVariable>(std::move(traits), std::move(copy)));
  }
  VariableTraits traits = TraitsOf(known, initial, worker_devices()[0], this);
  std::vector<VariablePtr> components(copies.begin(), copies.end());
  VariablePtr made;
  if (on_read) {
    made = std::make_shared<SyncOnReadVariable>(std::move(traits), std::move(components));
  } else {
    made = std::make_shared<MirroredVariable>(std::move(traits), std::move(components));
  }
  for (const auto& copy : copies) copy->SetContainer(made);
  return made;
}

}  // namespace cairn
