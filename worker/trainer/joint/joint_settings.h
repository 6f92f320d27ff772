// The settings on which workers that train as one must agree.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/collective/collective_group.h"

namespace cairn {

// All settings of the job that decide how many steps there are, what a step does, and when all wait
// for the first worker, as "key: value". Paths, devices and timeouts are not among them.
std::vector<std::string> JointSettings(const JobConfig& job, bool fresh,
                                       absl::Span<const VariableSpec> specs);

// kInvalidArgument, the same on every worker: the first setting in which a worker differs from the
// first worker, with both values. Otherwise errors as CollectiveGroup.
absl::Status CheckSameSettings(CollectiveGroup& group, absl::Span<const std::string> own,
                               absl::Duration timeout);

}  // namespace cairn
