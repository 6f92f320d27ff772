// The errors of several servers as one.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cairn {

// Joins all errors in one line, with the code of the first error. Errors that differ only in the
// server ("ps:1 (127.0.0.1:7002)") are one text with the list of servers. The reason is FENCED
// where any error has that, else the first reason. OK where none failed.
absl::Status Join(absl::Span<const absl::Status> statuses);

}  // namespace cairn
