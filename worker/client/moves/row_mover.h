// Carries a variable's rows from one server to another while both serve (ps_server/MOVES.md).
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

// From one server to one other, by one step of the variable's map.
struct RowMove {
  std::string job;
  VariableSpec now;   // the source's
  VariableSpec next;  // version one above, places that differ from source to target
  int32_t source = 0;
  int32_t target = 0;
  std::vector<int32_t> servers;  // all there are
};

struct RowMoveOptions {
  int64_t piece_bytes = int64_t{4} << 20;  // about how much is read, then written, at a time
  // Copying goes on until a pass over what has changed since is at most this long, or no shorter
  // than the one before; the rest is copied while updates are turned away.
  int64_t last_pass_bytes = int64_t{4} << 20;
  int most_passes = 8;
  absl::Duration hold = absl::Seconds(5);  // updates are turned away at most so long
  // MoveRowsInBatches: about so many bytes of rows move at a time, so that little changes while
  // they are copied.
  int64_t batch_bytes = int64_t{64} << 20;
  // Of the time, at most; the rest is left to those that train.
  double busy_fraction = 0.5;
};

struct RowMoveOutcome {
  int64_t stripes = 0;
  int64_t rows = 0;             // at the beginning
  int64_t bytes = 0;            // copied, those that had changed again included
  int passes = 0;               // before updates were turned away
  absl::Duration held;          // in all
  absl::Duration longest_hold;  // of one batch
  absl::Duration took;
  VariableSpec map;  // as it is then
};

// Calls of servers, by index; their errors are the servers', or those of the way to them.
class MoveServers {
 public:
  virtual ~MoveServers() = default;
  virtual absl::StatusOr<wire::MoveReply> Move(int32_t server,
                                               const wire::MoveRequest& request) = 0;
  // Makes the variable known to a server that may have no part of it.
  virtual absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) = 0;
};

// Moves the rows, whole or not at all. Of two movers of a variable the one that began later goes
// on, and the other fails with kFailedPrecondition, as where a server was restarted too often
// meanwhile. `deadline` bounds the
// copying; a move whose point of no return has been passed is ended, however late. kUnavailable:
// whether it was passed is not known, for the source does not answer; FinishMove finds out.
absl::StatusOr<RowMoveOutcome> MoveRows(const RowMove& move, const RowMoveOptions& options,
                                        MoveServers& servers, Deadline deadline);

// Moves them some at a time, each by a map of its own: where one batch fails those before it have
// moved. `bytes`: about what they are, on disk alone or in memory. Of `move.next` the places count.
absl::StatusOr<RowMoveOutcome> MoveRowsInBatches(const RowMove& move, int64_t bytes,
                                                 const RowMoveOptions& options,
                                                 MoveServers& servers, Deadline deadline);

// Tells every server the newest map that any of them is by: what a mover that died in the middle
// has left to do. OK where there is nothing.
absl::Status FinishMove(const std::string& job, const VariableSpec& newest,
                        absl::Span<const int32_t> servers, MoveServers& calls);

// Ends what movers have begun and not brought to an end: rows that have arrived somewhere, and may
// be given to that server yet, are forgotten there. A mover that is at work is taken for one that
// has died, and fails. `newest`: known to all servers. kFailedPrecondition: a source has given rows
// away since; FinishMove.
absl::Status GiveUpMoves(const std::string& job, const VariableSpec& newest,
                         const std::vector<int32_t>& servers, MoveServers& calls);

}  // namespace cairn
