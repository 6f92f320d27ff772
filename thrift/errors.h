// wire::ServerError <-> absl::Status. Both ways keep code, message, reason, replay_after,
// retry_after_ms and moved.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "thrift/cairn_types.h"

namespace cairn {

// Reason NONE. A code outside the wire's becomes UNKNOWN. `status` must not be OK.
wire::ServerError ToServerError(const absl::Status& status);
// Never OK: an error with code 0 or one out of range becomes kUnknown.
absl::Status FromServerError(const wire::ServerError& error);

// `status` with `reason` attached (a payload of the Status).
absl::Status WithReason(absl::Status status, wire::ErrorReason::type reason,
                        int64_t replay_after = 0);
// NONE where none is attached.
wire::ErrorReason::type ReasonOf(const absl::Status& status);
// 0 where none is attached.
int64_t ReplayAfterOf(const absl::Status& status);

// kUnavailable, reason BUSY: nothing was done, and the call is welcome again after `retry_after`
// (in whole milliseconds, 1 at least).
absl::Status BusyError(absl::string_view message, absl::Duration retry_after);
// Zero where none is attached.
absl::Duration RetryAfterOf(const absl::Status& status);

// kFailedPrecondition, reason MOVED, with the variables' maps.
absl::Status MovedError(absl::string_view message, absl::Span<const wire::VariableSpec> maps);
// Empty where none are attached.
std::vector<wire::VariableSpec> MovedOf(const absl::Status& status);

}  // namespace cairn
