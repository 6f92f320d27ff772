// Which errors are the user's files and flags (exit status 2), and which are not (1).
#pragma once

#include "absl/status/status.h"

namespace cairn {

// Marks an error as one of bad flags or files; OK stays OK.
absl::Status AsBadInput(absl::Status status);
// JOB.md: 0 for OK, 2 for what AsBadInput marked, else 1.
int ExitCodeOf(const absl::Status& status);

}  // namespace cairn
