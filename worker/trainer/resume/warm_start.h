// The values of a new job from those of another job's checkpoint.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"

namespace cairn {

// Gives those of `specs` that warm_start.variables names the values that `source`, the checkpoint's
// job, has under the same names; slots stay as they began, rows that `source` lacks too. They are
// durable when OK is returned; doing it again does no harm while nobody trains. A variable that
// only a pattern with '*' names and `source` lacks is left as it is, which is logged.
// kInvalidArgument (AsBadInput): a pattern is for none of `specs`; nothing of the checkpoint is
// used; one named without '*' is not in it; another kind, dtype or shape, both of which the message
// shows. `call_timeout` bounds each call.
absl::Status WarmStart(PsClient& source, const WarmStartConfig& config,
                       absl::Span<const VariableSpec> specs, PsClient& client,
                       absl::Duration call_timeout);

}  // namespace cairn
