// Converts a resolver's cluster to the form that the programs take.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/cluster_config.h"
#include "worker/cluster/cluster_resolver.h"

namespace cairn {

// TF_CONFIG's JSON of the resolver's cluster and task, which the programs' --cluster accepts.
// Errors are the resolver's.
absl::StatusOr<std::string> TfConfigText(const ClusterResolver& resolver);

// Like TfConfigText, parsed and checked by the rules of cluster files (ParseCluster): jobs without
// gaps, host:port, no repeated address, a task of the cluster; jobs of other names become warnings.
// Messages name the cluster by `source` ("SLURM").
absl::StatusOr<ClusterConfig> ResolveClusterConfig(const ClusterResolver& resolver,
                                                   absl::string_view source);

}  // namespace cairn
