#include "worker/cluster/file_cluster_resolver.h"

#include <utility>

#include "common/status.h"

namespace cairn {

FileClusterResolver::FileClusterResolver(ClusterConfig config, ResolverOverrides overrides)
    : ClusterResolver(std::move(overrides)), config_(std::move(config)) {}

absl::StatusOr<std::unique_ptr<FileClusterResolver>> FileClusterResolver::Open(
    const std::string& path, ResolverOverrides overrides) {
  ASSIGN_OR_RETURN(ClusterConfig config, ReadClusterFile(path));
  return std::make_unique<FileClusterResolver>(std::move(config), std::move(overrides));
}

absl::StatusOr<ClusterSpec> FileClusterResolver::cluster_spec() const {
  return ClusterSpec::FromLists(config_.tasks);
}

absl::StatusOr<std::optional<std::string>> FileClusterResolver::SourceTaskType() const {
  if (config_.task_type.empty()) return std::optional<std::string>();
  return std::optional<std::string>(config_.task_type);
}

absl::StatusOr<std::optional<int32_t>> FileClusterResolver::SourceTaskId() const {
  if (config_.task_index < 0) return std::optional<int32_t>();
  return std::optional<int32_t>(config_.task_index);
}

}  // namespace cairn
