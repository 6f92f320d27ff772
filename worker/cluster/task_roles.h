// Which part each task of a cluster plays: chief, worker, evaluator, parameter server
// (tensorflow/python/distribute/multi_worker_util.py, with its texts).
//
// Every function but CoordinationLeader first checks the cluster as ValidateClusterSpec does. All
// errors are kInvalidArgument.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/cluster/cluster_spec.h"

namespace cairn {

// Jobs are chief, worker, ps and evaluator; at most one chief and one evaluator; `task_type` is a
// job of the cluster (an evaluator may stand outside) and has a task `task_id`.
absl::Status ValidateClusterSpec(const ClusterSpec& spec, absl::string_view task_type,
                                 int32_t task_id);
// The same, and at least one worker and one ps: what ParameterServerStrategy needs.
absl::Status ValidateParameterServerCluster(const ClusterSpec& spec, absl::string_view task_type,
                                            int32_t task_id);

// The chief, else worker 0; an evaluator is the chief of its own.
absl::StatusOr<bool> IsChief(const ClusterSpec& spec, absl::string_view task_type, int32_t task_id);

// Tasks that train together: chief and workers, or the evaluators. An error for a ps.
absl::StatusOr<int32_t> WorkerCount(const ClusterSpec& spec, absl::string_view task_type);

// The task's number among those: chief 0, then the workers. An error for a ps.
absl::StatusOr<int32_t> IdInCluster(const ClusterSpec& spec, absl::string_view task_type,
                                    int32_t task_id);

// The task that leads collectives, "/job:chief/replica:0/task:0" or worker 0; "" where there are
// none: without a cluster, and for an evaluator.
absl::StatusOr<std::string> CollectiveLeader(const ClusterSpec& spec, absl::string_view task_type,
                                             int32_t task_id);

// The task that coordinates: the first of ps 0, chief 0, worker 0 that there is; "" without a
// cluster.
absl::StatusOr<std::string> CoordinationLeader(const ClusterSpec& spec);

}  // namespace cairn
