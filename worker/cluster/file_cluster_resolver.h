// The cluster in a cluster file: YAML, or TF_CONFIG's JSON.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/config/cluster_config.h"
#include "worker/cluster/cluster_resolver.h"

namespace cairn {

// Reads the file that the programs' --cluster takes, with the same rules: jobs are ps, worker,
// chief and evaluator.
class FileClusterResolver : public ClusterResolver {
 public:
  // Reads the file once. kNotFound, kInvalidArgument: as ReadClusterFile.
  static absl::StatusOr<std::unique_ptr<FileClusterResolver>> Open(
      const std::string& path, ResolverOverrides overrides = {});
  explicit FileClusterResolver(ClusterConfig config, ResolverOverrides overrides = {});

  absl::StatusOr<ClusterSpec> cluster_spec() const override;
  // Keys of the file that have no effect, one line each, for the log.
  const std::vector<std::string>& warnings() const { return config_.warnings; }

 protected:
  absl::StatusOr<std::optional<std::string>> SourceTaskType() const override;
  absl::StatusOr<std::optional<int32_t>> SourceTaskId() const override;

 private:
  const ClusterConfig config_;
};

}  // namespace cairn
