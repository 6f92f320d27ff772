#include "worker/cluster/session_config.h"

#include "common/status.h"
#include "worker/cluster/device_spec.h"
#include "worker/cluster/task_roles.h"

namespace cairn {

absl::StatusOr<SessionConfig> ParameterServerSessionConfig(const ClusterSpec& spec,
                                                           absl::string_view task_type,
                                                           int32_t task_id) {
  SessionConfig config;
  config.isolate_session_state = spec.empty();
  if (spec.empty()) return config;
  RETURN_IF_ERROR(ValidateClusterSpec(spec, task_type, task_id));
  if (task_type == "ps") return config;
  const DeviceSpec own{.job = std::string(task_type), .task = task_id};
  config.device_filters.push_back(own.ToString());
  if (task_type != "evaluator") config.device_filters.emplace_back("/job:ps");
  return config;
}

}  // namespace cairn
