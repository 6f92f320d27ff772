// The cluster of the resolver that a program's flags name.
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
  // --cluster_jobs. slurm: number of tasks of each job, "ps=2,worker=4". kubernetes: label
  // selectors of each job, "ps:role=ps;worker:role=worker".
  std::string jobs = {};
  int32_t port = 0;  // --cluster_port: slurm's first port of a host, every pod's; 0: not given
};

// file: as --cluster without a resolver. tf_config: the variable must be set.
// slurm: SlurmClusterResolver; a task keeps the GPUs that Slurm has bound to it.
// kubernetes: KubernetesClusterResolver with podIP; the variable POD_NAME, if set, determines the
// task.
// kInvalidArgument: no such resolver, a missing or unexpected flag, or a cluster that breaks the
// rules of cluster files. Otherwise the resolver's errors.
absl::StatusOr<ClusterConfig> ReadNamedCluster(const NamedCluster& named,
                                               const Environment& environment);

// `config` as TF_CONFIG's JSON, which is a valid cluster file.
std::string ClusterFileText(const ClusterConfig& config);

}  // namespace cairn
