// Moves a variable's rows from one server to another while both keep serving (ps_server/MOVES.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/variables/variable_spec.h"
#include "thrift/cairn_types.h"

namespace cairn {

// A move between two servers. It raises the version of the variable's map by one.
struct RowMove {
  std::string job;
  VariableSpec now;   // the map of the source
  VariableSpec next;  // version one higher; rows that move are on `target`
  int32_t source = 0;
  int32_t target = 0;
  std::vector<int32_t> servers;  // all servers
};

struct RowMoveOptions {
  int64_t piece_bytes = int64_t{4} << 20;  // approximate bytes per READ and WRITE
  // Copying repeats until a pass over the rows changed since the pass before is at most this long,
  // or is no longer much shorter. The last pass then runs while the source rejects updates.
  int64_t last_pass_bytes = int64_t{4} << 20;
  int most_passes = 8;
  absl::Duration hold = absl::Seconds(5);  // longest time that updates are rejected
  // MoveRowsInBatches: approximate bytes of rows per batch. Small batches change little while they
  // are copied.
  int64_t batch_bytes = int64_t{64} << 20;
  // Largest share of the time that copying may use; the rest is left to training.
  double busy_fraction = 0.5;
};

struct RowMoveOutcome {
  int64_t stripes = 0;
  int64_t rows = 0;             // at the start of the move
  int64_t bytes = 0;            // copied, including rows copied again
  int passes = 0;               // before updates were rejected
  absl::Duration held;          // time that updates were rejected, in total
  absl::Duration longest_hold;  // of one batch
  absl::Duration took;
  VariableSpec map;  // after the move
};

// The calls that a move makes on servers, by index. Errors come from the server or the connection.
class MoveServers {
 public:
  virtual ~MoveServers() = default;
  virtual absl::StatusOr<wire::MoveReply> Move(int32_t server,
                                               const wire::MoveRequest& request) = 0;
  // Creates the variable on a server that may hold no rows of it.
  virtual absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) = 0;
};

// Moves all the rows or none. Of two movers of the same variable the later one wins.
// `deadline` bounds the copying; once the source has given the rows away, the move is completed
// however long that takes.
// kFailedPrecondition: a later mover took over, or a server restarted too often during the move.
// kUnavailable: the source does not answer, so it is unknown whether it gave the rows away;
// FinishMove finds out.
absl::StatusOr<RowMoveOutcome> MoveRows(const RowMove& move, const RowMoveOptions& options,
                                        MoveServers& servers, Deadline deadline);

// Moves the rows in batches, each with its own map version: if a batch fails, the earlier batches
// have moved. `bytes`: approximate size of the rows, in memory or only on disk. Only the placement
// in `move.next` is used.
absl::StatusOr<RowMoveOutcome> MoveRowsInBatches(const RowMove& move, int64_t bytes,
                                                 const RowMoveOptions& options,
                                                 MoveServers& servers, Deadline deadline);

// Installs the newest map on every server: completes the work of a mover that died. OK also where
// no server needs it.
absl::Status FinishMove(const std::string& job, const VariableSpec& newest,
                        absl::Span<const int32_t> servers, MoveServers& calls);

// Aborts unfinished moves: rows that arrived at a target without being given to it are discarded
// there. A mover that is still running then fails. `newest`: a map that all servers know.
// kFailedPrecondition: a source has given rows away since; call FinishMove.
absl::Status GiveUpMoves(const std::string& job, const VariableSpec& newest,
                         const std::vector<int32_t>& servers, MoveServers& calls);

}  // namespace cairn
