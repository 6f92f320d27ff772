// Reduces and copies the replicas' values within one process; the building blocks of strategies.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/device.h"
#include "worker/collective/reduce_op.h"
#include "worker/strategy/value.h"

namespace cairn {

// kInvalidArgument: `op` is none of the enumerators. The message begins with `method`.
absl::Status CheckReduceOp(absl::string_view method, ReduceOp op);
// The sum of tensors, or the concatenation of slices in the given order. kInvalidArgument: shapes
// or dtypes differ, or the values mix tensors and slices.
absl::StatusOr<Value> SumValues(absl::Span<const Value> values);
// The mean of `count` contributions, given their sum. Float64 for integers; NaN if count is 0.
absl::StatusOr<Value> MeanOf(const Value& sum, int64_t count);
// The sum or mean of the values of `count` replicas, given their sum. The value of a single replica
// is its own mean and keeps its dtype.
absl::StatusOr<Value> OfReplicas(ReduceOp op, Value sum, int64_t count);
// One tensor (or slices) on each device. The first entry on the device of `value`, or of each
// component of a Mirrored one, is that itself, so the caller must hold the only reference; the
// other entries are copies.
absl::StatusOr<std::vector<Value>> SpreadOver(const Value& value, absl::Span<const Device> devices);

// Reduces the values v with chosen[v], if any, by one call of `reduce_chosen`, and all others by
// one call of `reduce_others`. Returns the results in the order of `locals`.
using ReplicaValues = absl::Span<const Value::Sequence>;
using ReduceFn = absl::FunctionRef<absl::StatusOr<std::vector<Value>>(ReplicaValues locals)>;
absl::StatusOr<std::vector<Value>> ReduceApart(ReplicaValues locals,
                                               const std::vector<bool>& chosen,
                                               ReduceFn reduce_chosen, ReduceFn reduce_others);

}  // namespace cairn
