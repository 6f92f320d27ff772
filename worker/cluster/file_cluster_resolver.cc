#include "worker/cluster/file_cluster_resolver.h"

#include <utility>

#include "common/status.h"

namespace cairn {

FileClusterResolver::FileClusterResolver(ClusterConfig config, ResolverOverrides overrides)
    : StaticClusterResolver(std::move(overrides)), warnings_(std::move(config.warnings)) {
  spec_ = ClusterSpec::FromLists(config.tasks);
  if (!config.task_type.empty()) task_type_ = config.task_type;
  if (config.task_index >= 0) task_id_ = config.task_index;
}

absl::StatusOr<std::unique_ptr<FileClusterResolver>> FileClusterResolver::Open(
    const std::string& path, ResolverOverrides overrides) {
  ASSIGN_OR_RETURN(ClusterConfig config, ReadClusterFile(path));
  return std::make_unique<FileClusterResolver>(std::move(config), std::move(overrides));
}

}  // namespace cairn
