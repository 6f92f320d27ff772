#include "worker/collective/reduce_op.h"

#include "absl/strings/match.h"
#include "common/errors.h"

namespace cairn {

absl::string_view ReduceOpName(ReduceOp op) { return op == ReduceOp::kSum ? "sum" : "mean"; }

absl::StatusOr<ReduceOp> ReduceOpFromName(absl::string_view name) {
  if (absl::EqualsIgnoreCase(name, "sum")) return ReduceOp::kSum;
  if (absl::EqualsIgnoreCase(name, "mean")) return ReduceOp::kMean;
  return InvalidArgument("reduce op '", name, "' is unknown; allowed: SUM, MEAN, in either case");
}

}  // namespace cairn
