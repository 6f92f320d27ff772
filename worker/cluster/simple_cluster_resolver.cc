#include "worker/cluster/simple_cluster_resolver.h"

#include <utility>

#include "common/status.h"

namespace cairn {

SimpleClusterResolver::SimpleClusterResolver(ClusterSpec spec, ResolverOverrides task,
                                             std::string master, AcceleratorCounts accelerators)
    : StaticClusterResolver(std::move(task)),
      master_(std::move(master)),
      accelerators_(std::move(accelerators)) {
  spec_ = std::move(spec);
}

absl::StatusOr<std::string> SimpleClusterResolver::ResolveMaster(
    const MasterArguments& arguments) const {
  if (arguments.task_type.has_value() && arguments.task_id.has_value()) {
    return ClusterResolver::ResolveMaster(arguments);
  }
  ASSIGN_OR_RETURN(const MasterArguments completed, Completed(arguments));
  return FormatMasterUrl(master_, completed.rpc_layer);
}

absl::StatusOr<AcceleratorCounts> SimpleClusterResolver::CountAccelerators(
    const std::optional<std::string>& /*task_type*/, std::optional<int32_t> /*task_id*/) const {
  return accelerators_;
}

}  // namespace cairn
