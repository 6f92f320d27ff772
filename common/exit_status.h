// Distinguishes errors in the user's files and flags (exit status 2) from other errors (1).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn {

// Marks an error as caused by the flags or files that the user gave. OK stays OK.
absl::Status AsBadInput(absl::Status status);
template <typename T>
absl::StatusOr<T> AsBadInput(absl::StatusOr<T> result) {
  if (!result.ok()) return AsBadInput(result.status());
  return result;
}
// 0 for OK, 2 for an error that AsBadInput marked, 1 for any other error.
int ExitCodeOf(const absl::Status& status);

}  // namespace cairn
