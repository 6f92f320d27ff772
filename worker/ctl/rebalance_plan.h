// Which rows are to go where, so that every server has about as much of a job: of its bytes, or of
// its load.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/variables/variable_spec.h"
#include "worker/client/moves/remote_moves.h"

namespace cairn {

struct PlannedMove {
  size_t variable = 0;  // in the list that was planned for
  int32_t source = 0;
  int32_t target = 0;
  std::vector<size_t> pieces;  // hash buckets, or shards
  int64_t bytes = 0;           // of the source's memory, about
  int64_t cold_bytes = 0;      // of rows on its disk alone, about
  int64_t load = 0;            // of the pieces
};

// By server.
struct Shares {
  std::vector<int64_t> bytes;  // of memory
  std::vector<int64_t> load;
};

struct RebalancePlan {
  Shares before, after;
  std::vector<PlannedMove> moves;  // one a variable, source and target
};

// By variable, in the order of the list that is planned for, and piece: what pulls and pushes move
// in bytes a second, where each row of a table that is named counts kKeyBytes more.
using PieceLoads = std::vector<std::vector<int64_t>>;

// A key, and what finding its row costs a server beside moving bytes (ps_server/COST.md).
inline constexpr int64_t kKeyBytes = 8 + 48;

// From two looks at the same servers, `seconds` apart. What came to a server between them, or was
// restarted there, has the load that is known of it, which is less.
PieceLoads LoadsBetween(absl::Span<const VariablePlaces> before,
                        absl::Span<const VariablePlaces> after, double seconds);

// Moves as little as it can find until no server of those that keep rows is more than `tolerance`
// (0.05: 5 %) above their mean, or no piece fits: of memory, whose pieces of a variable on one
// server count as equal, or, where `loads` is not empty, of load. A server in `emptied` ends
// without rows. kInvalidArgument: no server is left.
absl::StatusOr<RebalancePlan> PlanRebalance(absl::Span<const VariablePlaces> variables,
                                            int32_t server_count, absl::Span<const int32_t> emptied,
                                            double tolerance, const PieceLoads& loads = {});

// `now` by the map that the move ends with.
VariableSpec MapAfter(const VariableSpec& now, const PlannedMove& move);

}  // namespace cairn
