#include "worker/cluster/cluster_resolver.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/local_gpus.h"
#include "common/status.h"
#include "worker/cluster/device_spec.h"

namespace cairn {

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::make_optional<std::string>(value);
  };
}

std::string FormatMasterUrl(absl::string_view address,
                            const std::optional<std::string>& rpc_layer) {
  if (address.empty() || !rpc_layer.has_value() || rpc_layer->empty()) return std::string(address);
  return absl::StrCat(*rpc_layer, "://", address);
}

absl::StatusOr<std::optional<std::string>> ClusterResolver::task_type() const {
  if (overrides_.task_type.has_value()) return overrides_.task_type;
  return SourceTaskType();
}

absl::StatusOr<std::optional<int32_t>> ClusterResolver::task_id() const {
  if (overrides_.task_id.has_value()) return overrides_.task_id;
  return SourceTaskId();
}

absl::StatusOr<std::optional<std::string>> ClusterResolver::rpc_layer() const {
  if (overrides_.rpc_layer.has_value()) return overrides_.rpc_layer;
  return SourceRpcLayer();
}

absl::StatusOr<std::optional<std::string>> ClusterResolver::SourceTaskType() const {
  return std::optional<std::string>();
}

absl::StatusOr<std::optional<int32_t>> ClusterResolver::SourceTaskId() const {
  return std::optional<int32_t>();
}

absl::StatusOr<std::optional<std::string>> ClusterResolver::SourceRpcLayer() const {
  return std::optional<std::string>();
}

absl::StatusOr<MasterArguments> ClusterResolver::Completed(const MasterArguments& arguments) const {
  MasterArguments completed = arguments;
  if (!completed.task_type.has_value()) {
    ASSIGN_OR_RETURN(completed.task_type, task_type());
  }
  if (!completed.task_id.has_value()) {
    ASSIGN_OR_RETURN(completed.task_id, task_id());
  }
  if (!completed.rpc_layer.has_value()) {
    ASSIGN_OR_RETURN(completed.rpc_layer, rpc_layer());
  }
  return completed;
}

absl::StatusOr<std::string> ClusterResolver::Master(const MasterArguments& arguments) const {
  return ResolveMaster(arguments);
}

absl::StatusOr<std::string> ClusterResolver::ResolveMaster(const MasterArguments& arguments) const {
  ASSIGN_OR_RETURN(const MasterArguments task, Completed(arguments));
  if (!task.task_type.has_value() || !task.task_id.has_value()) return std::string();
  ASSIGN_OR_RETURN(const ClusterSpec spec, cluster_spec());
  ASSIGN_OR_RETURN(const std::string address, spec.task_address(*task.task_type, *task.task_id));
  return FormatMasterUrl(address, task.rpc_layer);
}

absl::StatusOr<AcceleratorCounts> ClusterResolver::NumAccelerators(
    const std::optional<std::string>& task_type, std::optional<int32_t> task_id) const {
  if (lister_) return CountListed(task_type, task_id);
  return CountAccelerators(task_type, task_id);
}

absl::StatusOr<AcceleratorCounts> ClusterResolver::CountListed(
    const std::optional<std::string>& task_type, std::optional<int32_t> task_id) const {
  ASSIGN_OR_RETURN(const std::string master, Master({.task_type = task_type, .task_id = task_id}));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, lister_(master));
  AcceleratorCounts counts;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const DeviceSpec device, DeviceSpec::FromString(name));
    if (!device.device_type.has_value() || *device.device_type == "CPU") continue;
    const bool of_one_task = task_type.has_value() && task_id.has_value();
    if (of_one_task && (device.job != task_type || device.task != task_id)) continue;
    ++counts[*device.device_type];
  }
  return counts;
}

absl::StatusOr<AcceleratorCounts> ClusterResolver::CountAccelerators(
    const std::optional<std::string>& type, std::optional<int32_t> id) const {
  ASSIGN_OR_RETURN(const std::optional<std::string> own_type, task_type());
  ASSIGN_OR_RETURN(const std::optional<int32_t> own_id, task_id());
  if ((type.has_value() && type != own_type) || (id.has_value() && id != own_id)) {
    return Unimplemented("the GPUs of task ", type.value_or("(own type)"), ":",
                         id.value_or(own_id.value_or(0)),
                         " are known only to that process; ask there, or call set_device_lister");
  }
  AcceleratorCounts counts;
  const int32_t gpus = LocalGpuCount();
  if (gpus > 0) counts["GPU"] = gpus;
  return counts;
}

}  // namespace cairn
