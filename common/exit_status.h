// Distinguishes errors in the user's files and flags (exit status 2) from other errors (1).
#pragma once

#include "absl/status/status.h"

namespace cairn {

// Marks an error as caused by the flags or files that the user gave. OK stays OK.
absl::Status AsBadInput(absl::Status status);
// 0 for OK, 2 for an error that AsBadInput marked, 1 for any other error.
int ExitCodeOf(const absl::Status& status);

}  // namespace cairn
