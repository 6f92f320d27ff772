// Which rows are to go where, so that every server has about as many bytes of a job.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/variable_spec.h"
#include "worker/client/remote_moves.h"

namespace cairn {

struct PlannedMove {
  size_t variable = 0;  // in the list that was planned for
  int32_t source = 0;
  int32_t target = 0;
  std::vector<size_t> pieces;  // hash buckets, or shards
  int64_t bytes = 0;           // of the source's memory, about
  int64_t cold_bytes = 0;      // of rows on its disk alone, about
};

struct RebalancePlan {
  std::vector<int64_t> before, after;  // bytes of memory, by server
  std::vector<PlannedMove> moves;      // one a variable, source and target
};

// Moves as few bytes of memory as it can find until no server of those that keep rows is more than
// `tolerance` (0.05: 5 %) above their mean, or no piece fits. A server in `emptied` ends without
// any. Pieces of a variable on one server count as equal. kInvalidArgument: no server is left.
absl::StatusOr<RebalancePlan> PlanRebalance(absl::Span<const VariablePlaces> variables,
                                            int32_t server_count, absl::Span<const int32_t> emptied,
                                            double tolerance);

// `now` by the map that the move ends with.
VariableSpec MapAfter(const VariableSpec& now, const PlannedMove& move);

}  // namespace cairn
