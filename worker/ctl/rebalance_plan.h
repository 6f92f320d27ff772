// Plans which rows to move so that every server has about the same share of a job's bytes or load.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/variables/variable_spec.h"
#include "worker/client/moves/remote_moves.h"

namespace cairn {

struct PlannedMove {
  size_t variable = 0;  // index in the list given to PlanRebalance
  int32_t source = 0;
  int32_t target = 0;
  std::vector<size_t> pieces;  // hash buckets, or shards
  int64_t bytes = 0;           // approximate bytes of the source's memory
  int64_t cold_bytes = 0;      // approximate bytes of rows that are only on the source's disk
  int64_t load = 0;            // load of the pieces
};

// The bytes and the load of every server, by its index.
struct Shares {
  std::vector<int64_t> bytes;  // in memory
  std::vector<int64_t> load;
};

struct RebalancePlan {
  Shares before, after;
  std::vector<PlannedMove> moves;  // one for each variable, source and target
};

// The load of every piece, by variable (in the order of the list given to PlanRebalance) and piece:
// the bytes per second that pulls and pushes move. Each row of a table that they name adds
// kKeyBytes.
using PieceLoads = std::vector<std::vector<int64_t>>;

// The bytes of a key, plus the cost of finding its row, expressed in bytes moved
// (ps_server/COST.md).
inline constexpr int64_t kKeyBytes = 8 + 48;

// Computes the loads between two descriptions of the same servers, made `seconds` apart. A piece
// that arrived on a server between them, or whose server restarted, gets the load counted since
// then, which is too low.
PieceLoads LoadsBetween(absl::Span<const VariablePlaces> before,
                        absl::Span<const VariablePlaces> after, double seconds);

// Plans few moves after which no server that keeps rows is more than `tolerance` (0.05: 5 %) above
// the servers' mean, unless no piece fits. Balances the load if `loads` is not empty, else memory,
// where all pieces of a variable on one server count as equal. A server in `emptied` ends without
// rows. kInvalidArgument: no server is left.
absl::StatusOr<RebalancePlan> PlanRebalance(absl::Span<const VariablePlaces> variables,
                                            int32_t server_count, absl::Span<const int32_t> emptied,
                                            double tolerance, const PieceLoads& loads = {});

// Returns `now` with the placement map that results from the move.
VariableSpec MapAfter(const VariableSpec& now, const PlannedMove& move);

}  // namespace cairn
