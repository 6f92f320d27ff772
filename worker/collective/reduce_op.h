// How the values of several replicas are combined.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

enum class ReduceOp { kSum, kMean };

// "sum", "mean".
absl::string_view ReduceOpName(ReduceOp op);
// Parses either name in upper or lower case. kInvalidArgument: the message lists the names.
absl::StatusOr<ReduceOp> ReduceOpFromName(absl::string_view name);

}  // namespace cairn
