#include "worker/cluster/replica_device_setter.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "common/catch_exceptions.h"
#include "common/config/partitioner.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

PsStrategy Failing(absl::Status status) {
  return
      [status = std::move(status)](const PlacedOp&) -> absl::StatusOr<int32_t> { return status; };
}

absl::Status NoServers(absl::string_view strategy, int32_t ps_tasks) {
  return InvalidArgument(strategy, ": ps_tasks is ", ps_tasks, "; it must be at least 1");
}

}  // namespace

PsStrategy RoundRobinStrategy(int32_t ps_tasks) {
  if (ps_tasks < 1) return Failing(NoServers("RoundRobinStrategy", ps_tasks));
  // Shared because std::function copies its state: all copies advance the same round robin.
  std::shared_ptr<Placement> placement = RoundRobinPlacement(ps_tasks);
  return [placement](const PlacedOp& /*variable*/) { return placement->Next(0); };
}

PsStrategy GreedyLoadBalancingStrategy(int32_t ps_tasks, LoadFunction load) {
  if (ps_tasks < 1) return Failing(NoServers("GreedyLoadBalancingStrategy", ps_tasks));
  if (!load) {
    return Failing(
        absl::InvalidArgumentError("GreedyLoadBalancingStrategy: the load function is empty"));
  }
  std::shared_ptr<Placement> placement = GreedyByBytesPlacement(ps_tasks);
  return [placement, load = std::move(load)](const PlacedOp& variable) -> absl::StatusOr<int32_t> {
    ASSIGN_OR_RETURN(const int64_t cost, load(variable));
    return placement->Next(cost);
  };
}

absl::StatusOr<int64_t> ByteSizeLoad(const PlacedOp& variable) {
  absl::StatusOr<int64_t> elements = ElementCount(variable.shape);
  if (!elements.ok()) return Annotate(elements.status(), variable.name);
  return *elements * static_cast<int64_t>(DTypeBytes(variable.dtype));
}

absl::StatusOr<std::unique_ptr<ReplicaDeviceSetter>> ReplicaDeviceSetter::Create(
    const DeviceSetterOptions& options) {
  auto setter = absl::WrapUnique(new ReplicaDeviceSetter);
  ASSIGN_OR_RETURN(setter->ps_device_, DeviceSpec::FromString(options.ps_device));
  ASSIGN_OR_RETURN(setter->worker_device_, DeviceSpec::FromString(options.worker_device));
  setter->ps_tasks_ = options.ps_tasks;
  if (options.cluster.has_value()) {
    setter->ps_tasks_ = options.cluster->task_count(setter->ps_device_.job.value_or(""));
  }
  if (setter->ps_tasks_ < 0) {
    return InvalidArgument("replica_device_setter: ps_tasks is ", options.ps_tasks,
                           "; expected 0 or more");
  }
  if (setter->ps_tasks_ == 0) return nullptr;
  setter->merge_devices_ = options.merge_devices;
  setter->strategy_ =
      options.ps_strategy ? options.ps_strategy : RoundRobinStrategy(setter->ps_tasks_);
  return setter;
}

absl::StatusOr<std::string> ReplicaDeviceSetter::Device(const PlacedOp& op) {
  ASSIGN_OR_RETURN(const DeviceSpec asked, DeviceSpec::FromString(op.device));
  if (!merge_devices_ && !op.device.empty()) return asked.ToString();
  const bool has_ps_device = !ps_device_.ToString().empty();
  if (!op.is_variable || !has_ps_device) return worker_device_.MergedWith(asked).ToString();
  DeviceSpec device = ps_device_;
  if (device.job.has_value() && (!asked.job.has_value() || asked.job == device.job)) {
    ASSIGN_OR_RETURN(const int32_t task,
                     CatchExceptions("the ps_strategy", [&] { return strategy_(op); }));
    if (task < 0 || task >= ps_tasks_) {
      return InvalidArgument("the strategy put variable ", op.name, " on ps ", task, "; there are ",
                             ps_tasks_);
    }
    device.task = task;
  }
  return device.MergedWith(asked).ToString();
}

}  // namespace cairn
