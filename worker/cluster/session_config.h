// The tasks that a task of a parameter server cluster talks to: the part of TensorFlow's
// ConfigProto that ParameterServerStrategy sets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/cluster/cluster_spec.h"

namespace cairn {

struct SessionConfig {
  // Whether the task keeps its state to itself; true without a cluster.
  bool isolate_session_state = false;
  // The tasks that this task sees, including itself; workers do not see each other. Empty: all.
  std::vector<std::string> device_filters = {};
};

// kInvalidArgument: as ValidateClusterSpec, unless `spec` is empty (local training).
absl::StatusOr<SessionConfig> ParameterServerSessionConfig(const ClusterSpec& spec,
                                                           absl::string_view task_type,
                                                           int32_t task_id);

}  // namespace cairn
