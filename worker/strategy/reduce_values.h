// Reductions of the replicas' values in one process, and their copies: what strategies are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/collective/reduce_op.h"
#include "worker/strategy/value.h"

namespace cairn {

// The sum of tensors, or the concatenation of slices, in their order. kInvalidArgument: shapes or
// dtypes differ, or some are slices and some are not.
absl::StatusOr<Value> SumValues(absl::Span<const Value> values);
// A sum of `count` contributions as their mean; of integers as float64; NaN where count is 0.
absl::StatusOr<Value> MeanOf(const Value& sum, int64_t count);
// A tensor or slices on each device: `value`, which nobody else holds, itself on the first that it
// is on, copies on the others.
absl::StatusOr<std::vector<Value>> SpreadOver(const Value& value, absl::Span<const Device> devices);

}  // namespace cairn
