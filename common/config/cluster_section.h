// The cluster and task sections, which cluster files and job files share. Internal to this
// directory.
#pragma once

#include "absl/status/status.h"
#include "common/config/cluster_config.h"
#include "common/config/config_node.h"

namespace cairn {

// Reads members `cluster` and `task` of `root`, either of which may be missing.
absl::Status ReadClusterSections(const ConfigNode& root, ClusterConfig* config);

}  // namespace cairn
