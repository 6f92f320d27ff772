// How values of several replicas become one.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

enum class ReduceOp { kSum, kMean };

// "sum", "mean".
absl::string_view ReduceOpName(ReduceOp op);
// Either name in upper or lower case. kInvalidArgument lists them.
absl::StatusOr<ReduceOp> ReduceOpFromName(absl::string_view name);

}  // namespace cairn
