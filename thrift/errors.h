// wire::ServerError <-> absl::Status. Both directions keep code, message, reason, replay_after,
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

// Reason NONE if none is attached. A code that the wire does not have becomes UNKNOWN. `status`
// must not be OK.
wire::ServerError ToServerError(const absl::Status& status);
// Never OK: an error whose code is 0 or out of range becomes kUnknown.
absl::Status FromServerError(const wire::ServerError& error);

// `status` with `reason` attached (a payload of the Status).
absl::Status WithReason(absl::Status status, wire::ErrorReason::type reason,
                        int64_t replay_after = 0);
// NONE if none is attached.
wire::ErrorReason::type ReasonOf(const absl::Status& status);
// 0 if none is attached.
int64_t ReplayAfterOf(const absl::Status& status);

// kUnavailable, reason BUSY: nothing was done, and the caller may retry after `retry_after`
// (rounded to whole milliseconds, at least 1).
absl::Status BusyError(absl::string_view message, absl::Duration retry_after);
// Zero if none is attached.
absl::Duration RetryAfterOf(const absl::Status& status);

// kFailedPrecondition, reason MOVED, with the variables' maps.
absl::Status MovedError(absl::string_view message, absl::Span<const wire::VariableSpec> maps);
// Empty if none are attached.
std::vector<wire::VariableSpec> MovedOf(const absl::Status& status);

}  // namespace cairn
