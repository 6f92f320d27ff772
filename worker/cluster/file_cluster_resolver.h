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
class FileClusterResolver : public StaticClusterResolver {
 public:
  // Reads the file once. kNotFound, kInvalidArgument: as ReadClusterFile.
  static absl::StatusOr<std::unique_ptr<FileClusterResolver>> Open(
      const std::string& path, ResolverOverrides overrides = {});
  explicit FileClusterResolver(ClusterConfig config, ResolverOverrides overrides = {});

  // Keys of the file that have no effect, one line each, for the log.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  const std::vector<std::string> warnings_;
};

}  // namespace cairn
