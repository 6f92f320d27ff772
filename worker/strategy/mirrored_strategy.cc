#include "worker/strategy/mirrored_strategy.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/collective/nccl_group.h"
#include "worker/ops/device_queue.h"
#include "worker/strategy/distributed_variable.h"
#include "worker/strategy/reduce_values.h"

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

namespace {

absl::Status CheckNccl(absl::Span<const Device> devices) {
  std::set<int> gpus;
  for (const Device device : devices) {
    if (device.is_cpu() || !gpus.insert(PhysicalGpu(device)).second) {
      return absl::FailedPreconditionError(
          absl::StrCat("NCCL adds up between different GPUs; ", device.text(),
                       device.is_cpu() ? " is none" : " shares a GPU with another device"));
    }
  }
  if (gpus.size() < 2) return absl::FailedPreconditionError("NCCL needs more than one GPU");
  if (*gpus.rbegin() >= UsableGpuCount()) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL needs GPUs that CUDA can use; it can use ", UsableGpuCount(), " here"));
  }
  return NcclStatus();
}

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
  return std::all_of(values.begin(), values.end(), [](const Value& value) {
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
    strategy->gpus_ = std::make_unique<GpuAllReduce>(strategy->worker_devices(),
                                                     options.bytes_per_pack, options.join);
  }
  return strategy;
}

absl::StatusOr<std::vector<Value>> MirroredStrategy::ReduceAll(
    ReduceOp op, absl::Span<const Value::Sequence> locals, const CommunicationOptions& options) {
  std::vector<Value> results(locals.size());
  std::vector<Value::Sequence> by_nccl, by_copies;
  std::vector<size_t> nccl_places, copy_places;
  for (size_t v = 0; v < locals.size(); ++v) {
    const bool nccl = gpus_ != nullptr && gpus_->CanReduce(locals[v]);
    if (!nccl && cross_device_ops_ == CrossDeviceOps::kHierarchicalCopy && !locals[v].empty() &&
        IsDense(locals[v])) {
      const auto pack = static_cast<int64_t>(v);
      ASSIGN_OR_RETURN(results[v], HierarchicalSum(locals[v], pack));
      if (op == ReduceOp::kMean) {
        ASSIGN_OR_RETURN(results[v], MeanOf(results[v], static_cast<int64_t>(locals[v].size())));
      }
      continue;
    }
    (nccl ? by_nccl : by_copies).push_back(locals[v]);
    (nccl ? nccl_places : copy_places).push_back(v);
  }
  const auto place = [&results](std::vector<Value> from, const std::vector<size_t>& places) {
    for (size_t i = 0; i < from.size(); ++i) results[places[i]] = std::move(from[i]);
  };
  if (!by_nccl.empty()) {
    ASSIGN_OR_RETURN(std::vector<Value> sums, gpus_->Reduce(op, by_nccl));
    place(std::move(sums), nccl_places);
  }
  ASSIGN_OR_RETURN(std::vector<Value> sums, Strategy::ReduceAll(op, by_copies, options));
  place(std::move(sums), copy_places);
  return results;
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
