// The cluster that a program's flags name a resolver for.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/cluster_config.h"
#include "worker/cluster/cluster_resolver.h"

namespace cairn {

struct NamedCluster {
  std::string resolver = {};  // --cluster_resolver: file tf_config slurm kubernetes
  std::string file = {};      // --cluster: the cluster file, or the list of pods; "": not given
  // --cluster_jobs. slurm: tasks of each job, "ps=2,worker=4". kubernetes: its label selector,
  // "ps:role=ps;worker:role=worker".
  std::string jobs = {};
  int32_t port = 0;  // --cluster_port: slurm's first port of a host, every pod's; 0: not given
};

// file: as --cluster without a resolver. tf_config: the variable must be set.
// slurm: SlurmClusterResolver; the GPUs of a task are left as Slurm has bound them.
// kubernetes: KubernetesClusterResolver over podIP; the variable POD_NAME says the task, where it
// is set. kInvalidArgument: no such resolver, a flag that it needs or does not take, and what the
// cluster's rules refuse. Else as the resolver.
absl::StatusOr<ClusterConfig> ReadNamedCluster(const NamedCluster& named,
                                               const Environment& environment);

// `config` as TF_CONFIG's JSON, which is a cluster file.
std::string ClusterFileText(const ClusterConfig& config);

}  // namespace cairn
