// The role of each task of a cluster: chief, worker, evaluator, parameter server
// (tensorflow/python/distribute/multi_worker_util.py, with its messages).
//
// Every function except CoordinationLeader first checks the cluster as ValidateClusterSpec does.
// All errors are kInvalidArgument.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/cluster/cluster_spec.h"

namespace cairn {

// Jobs must be chief, worker, ps and evaluator, with at most one chief and one evaluator.
// `task_type` must be a job of the cluster (an evaluator may be outside) with a task `task_id`.
absl::Status ValidateClusterSpec(const ClusterSpec& spec, absl::string_view task_type,
                                 int32_t task_id);
// Like ValidateClusterSpec, and requires at least one worker and one ps, as ParameterServerStrategy
// does.
absl::Status ValidateParameterServerCluster(const ClusterSpec& spec, absl::string_view task_type,
                                            int32_t task_id);

// The chief, or worker 0 if there is no chief; an evaluator is its own chief.
absl::StatusOr<bool> IsChief(const ClusterSpec& spec, absl::string_view task_type, int32_t task_id);

// Number of tasks that train together: chief and workers, or the evaluators. An error for a ps.
absl::StatusOr<int32_t> WorkerCount(const ClusterSpec& spec, absl::string_view task_type);

// The task's number among the tasks that WorkerCount counts: chief 0, then the workers. An error
// for a ps.
absl::StatusOr<int32_t> IdInCluster(const ClusterSpec& spec, absl::string_view task_type,
                                    int32_t task_id);

// The task that leads collectives, "/job:chief/replica:0/task:0" or worker 0; "" without a cluster
// and for an evaluator, which have no collectives.
absl::StatusOr<std::string> CollectiveLeader(const ClusterSpec& spec, absl::string_view task_type,
                                             int32_t task_id);

// The task that coordinates: the first that exists of ps 0, chief 0 and worker 0; "" without a
// cluster.
absl::StatusOr<std::string> CoordinationLeader(const ClusterSpec& spec);

}  // namespace cairn
