// A resolver's cluster in the form that the programs take.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/cluster_config.h"
#include "worker/cluster/cluster_resolver.h"

namespace cairn {

// TF_CONFIG's JSON of the resolver's cluster and task; the programs' --cluster reads it.
// Errors are the resolver's.
absl::StatusOr<std::string> TfConfigText(const ClusterResolver& resolver);

// The same by the rules of cluster files (ParseCluster): a job without gaps, host:port, no address
// twice, a task of the cluster; jobs of other names become warnings. `source` names the cluster in
// messages ("SLURM").
absl::StatusOr<ClusterConfig> ResolveClusterConfig(const ClusterResolver& resolver,
                                                   absl::string_view source);

}  // namespace cairn
