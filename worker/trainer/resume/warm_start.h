// Initializes a new job's values from another job's checkpoint.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"

namespace cairn {

// Copies, for each of `specs` that warm_start.variables matches, the values that `source`, the
// checkpoint's job, has under the same name. Slots keep their initial values, and so do rows that
// `source` lacks. The values are durable when OK is returned; repeating the call is harmless while
// no worker trains. A variable that `source` lacks keeps its values if it matches only a pattern
// with '*'; this is logged. kInvalidArgument (AsBadInput): a pattern matches none of `specs`; the
// checkpoint has none of the variables; it lacks one that is named without '*'; or kind, dtype or
// shape differ, both of which the message shows. `call_timeout` bounds each call.
absl::Status WarmStart(PsClient& source, const WarmStartConfig& config,
                       absl::Span<const VariableSpec> specs, PsClient& client,
                       absl::Duration call_timeout);

}  // namespace cairn
