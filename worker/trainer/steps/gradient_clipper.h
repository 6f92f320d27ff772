// Clips the gradients of a step by the norm of all of them (global_clipnorm), which no single
// server can compute.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/models/model.h"

namespace cairn {

// For workers whose mean the servers apply (strategy.consistency sync), which no worker has: checks
// that one server can take each norm. kInvalidArgument: names the limit, and the variable that
// several shards or servers share. `specs`: as planned for `servers` servers.
absl::Status CheckServersCanClip(const JobConfig& job, absl::Span<const VariableSpec> specs,
                                 size_t servers);

// Clips the gradients in place to optimizer.global_clipnorm, if it is set; clients and servers
// apply clipvalue and clipnorm. Rows that the step did not use have a zero gradient.
void ClipGradients(const JobConfig& job, StepState* state);

}  // namespace cairn
