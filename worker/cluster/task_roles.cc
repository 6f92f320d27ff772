#include "worker/cluster/task_roles.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/cluster/device_spec.h"

namespace cairn {
namespace {

constexpr absl::string_view kTaskTypes[] = {"chief", "worker", "evaluator", "ps"};

bool IsTaskType(absl::string_view name) {
  return std::find(std::begin(kTaskTypes), std::end(kTaskTypes), name) != std::end(kTaskTypes);
}

std::string FirstTask(absl::string_view job) {
  return DeviceSpec{.job = std::string(job), .replica = 0, .task = 0}.ToString();
}

}  // namespace

absl::Status ValidateClusterSpec(const ClusterSpec& spec, absl::string_view task_type,
                                 int32_t task_id) {
  const std::string known = absl::StrJoin(kTaskTypes, ", ");
  for (const std::string& job : spec.jobs()) {
    if (!IsTaskType(job)) {
      return InvalidArgument("Disallowed task type found in cluster spec: '", job,
                             "'. Allowed types are ", known, " and the cluster spec is ",
                             spec.ToJson());
    }
  }
  if (!IsTaskType(task_type)) {
    return InvalidArgument("Unrecognized task_type: ", task_type,
                           ", valid task types are: ", known);
  }
  if (!spec.has_job(task_type) && task_type != "evaluator") {
    return InvalidArgument("`task_type` '", task_type, "' not found in cluster_spec. It is ",
                           spec.ToJson());
  }
  for (const absl::string_view job : {"chief", "evaluator"}) {
    if (spec.task_count(job) > 1) {
      return InvalidArgument("There must be at most one '", job, "' job. It has ",
                             spec.task_count(job), " tasks");
    }
  }
  if (task_id < 0) {
    return InvalidArgument("The `task_id` ", task_id, " of ", task_type, " is negative");
  }
  // Compares with the count, so a job whose indices have gaps trains only in its dense part, as in
  // TensorFlow.
  if (spec.has_job(task_type) && task_id >= spec.task_count(task_type)) {
    return InvalidArgument("The `task_id` ", task_id, " exceeds the maximum id of ", task_type,
                           ", ", spec.task_count(task_type) - 1);
  }
  return absl::OkStatus();
}

absl::Status ValidateParameterServerCluster(const ClusterSpec& spec, absl::string_view task_type,
                                            int32_t task_id) {
  if (spec.empty()) {
    return absl::InvalidArgumentError(
        "Cluster spec must be non-empty: a parameter server strategy needs worker and ps tasks");
  }
  RETURN_IF_ERROR(ValidateClusterSpec(spec, task_type, task_id));
  for (const absl::string_view job : {"worker", "ps"}) {
    if (spec.task_count(job) < 1) {
      return InvalidArgument("There must be at least one ", job, ". The cluster spec is ",
                             spec.ToJson());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> IsChief(const ClusterSpec& spec, absl::string_view task_type,
                             int32_t task_id) {
  RETURN_IF_ERROR(ValidateClusterSpec(spec, task_type, task_id));
  if (task_type == "chief" || task_type == "evaluator") return true;
  return !spec.has_job("chief") && task_type == "worker" && task_id == 0;
}

absl::StatusOr<int32_t> WorkerCount(const ClusterSpec& spec, absl::string_view task_type) {
  RETURN_IF_ERROR(ValidateClusterSpec(spec, task_type, /*task_id=*/0));
  if (task_type == "ps") {
    return absl::InvalidArgumentError("Unexpected `task_type` 'ps': a ps is not a worker");
  }
  if (task_type == "evaluator") return spec.num_tasks("evaluator");
  return spec.task_count("chief") + spec.task_count("worker");
}

absl::StatusOr<int32_t> IdInCluster(const ClusterSpec& spec, absl::string_view task_type,
                                    int32_t task_id) {
  RETURN_IF_ERROR(ValidateClusterSpec(spec, task_type, task_id));
  if (task_type == "chief") return 0;
  if (task_type == "worker") return spec.task_count("chief") + task_id;
  if (task_type == "evaluator") return task_id;
  return absl::InvalidArgumentError("There is no id for task_type 'ps': a ps is not a worker");
}

absl::StatusOr<std::string> CollectiveLeader(const ClusterSpec& spec, absl::string_view task_type,
                                             int32_t task_id) {
  if (spec.empty()) return std::string();
  RETURN_IF_ERROR(ValidateClusterSpec(spec, task_type, task_id));
  if (task_type == "evaluator") return std::string();
  if (spec.has_job("chief")) return FirstTask("chief");
  if (spec.has_job("worker")) return FirstTask("worker");
  return InvalidArgument(
      "There is no collective leader: the cluster has neither chief nor worker: ", spec.ToJson());
}

absl::StatusOr<std::string> CoordinationLeader(const ClusterSpec& spec) {
  if (spec.empty()) return std::string();
  for (const absl::string_view job : {"ps", "chief", "worker"}) {
    if (spec.has_job(job)) return FirstTask(job);
  }
  return InvalidArgument(
      "There is no coordination leader: the cluster has no ps, chief or worker: ", spec.ToJson());
}

}  // namespace cairn
