// The moves in progress, of all jobs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/variables/variable_spec.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/base/wait_board.h"

namespace cairn {

class ArrivingRows;
class OutgoingRows;

// One side of a move.
struct Move {
  Move(VariableSpec to, int64_t begun_as, std::unique_ptr<OutgoingRows> out,
       std::unique_ptr<ArrivingRows> in);
  ~Move();

  // `mutex` held. kFailedPrecondition: the move was aborted, or its target would lack changes.
  absl::Status CheckGoesOn() const;
  // `mutex` held. How many of `bytes` are not charged for `pieces` yet.
  int64_t uncharged_bytes(int64_t bytes) const {
    return std::max<int64_t>(0, bytes - pieces_hold_.bytes());
  }
  // `mutex` held. Empties `pieces`, which get room for `bytes`; takes the charge that they lack
  // from `charged`.
  void ReservePieces(MemoryHold& charged, int64_t bytes);
  // `mutex` held. Frees the memory of `pieces` and its charge.
  void FreePieces();

  const VariableSpec map;  // the map with which the move ends
  const int64_t start;     // MoveRequest.start; 0: the move began before this server's start
  absl::Mutex mutex;       // held during each step, including I/O; guards the members below
  // Exactly one of the two is set.
  const std::unique_ptr<OutgoingRows> outgoing;
  const std::unique_ptr<ArrivingRows> arriving;
  bool ready = false;   // arriving: all rows are durable here
  bool drains = false;  // outgoing, sync: the hold began after workers had caught up
  // Outgoing: a READ took changes and failed before its reply was complete. The target may lack
  // them, so only another move can go on.
  bool lost_changes = false;
  bool ended = false;
  // Outgoing: the pieces that a READ collects. They keep their memory for the next READ of the
  // pass, because fresh pages cost more time than the copy.
  std::string pieces;
  absl::Duration read_at;  // outgoing: when the last READ began, on the monotonic clock

 private:
  MemoryHold pieces_hold_;
};

// At most one move per variable. Thread safety: every method may be called from several threads at
// once.
class Moves {
 public:
  // `waits` lists the calls that wait in Lock; it must outlive this object. `claim_limit`: see
  // Claim.
  explicit Moves(WaitBoard& waits, absl::Duration claim_limit = absl::Minutes(2))
      : waits_(waits), claim_limit_(claim_limit) {}

  // Holds move.mutex.
  TracedLock Lock(Move& move) const {
    return TracedLock(&move.mutex, &waits_, "move", "another step of the move");
  }
  // nullptr: no move.
  std::shared_ptr<Move> Find(absl::string_view job, absl::string_view variable) const;
  // If several movers try the same version of a variable's map, only the one with the highest
  // `start` may continue. False: `start` is not the highest. A mover that has taken no step for
  // `claim_limit` counts as killed: its number may be high because its host's clock is ahead.
  bool Claim(absl::string_view job, absl::string_view variable, int64_t version, int64_t start);
  // The mover that has the claim has taken a step.
  void RenewClaim(absl::string_view job, absl::string_view variable, int64_t start);
  bool HasClaim(absl::string_view job, absl::string_view variable, int64_t version,
                int64_t start) const;
  // Replaces the current move. False, and nothing changes: the move's start has no claim (0 needs
  // none, unless another start has one), or the move brings rows and arrivals are closed.
  bool Put(absl::string_view job, absl::string_view variable, std::shared_ptr<Move> move);
  // If no rows are moving here: returns true, and no move to this server can begin from now on.
  // Otherwise sets *job and *variable to the variable whose rows are moving here.
  bool CloseArrivals(std::string* job, std::string* variable);
  void OpenArrivals();
  bool arrivals_closed() const;
  // Frees the memory that moves keep for their next READ if they have had no READ for `idle`: their
  // mover may have died in the middle of a pass. A later READ takes the memory again. Waits for no
  // step and does not throw.
  void FreeIdlePieces(absl::Duration idle);
  // Does not throw.
  void Erase(absl::string_view job, absl::string_view variable);
  void EraseJob(absl::string_view job);

 private:
  // Job and variable. Lookups and Erase compare views and allocate nothing: a step that has changed
  // the disk must not fail in memory.
  using Key = std::pair<std::string, std::string>;
  using KeyView = std::pair<absl::string_view, absl::string_view>;
  struct KeyLess {
    using is_transparent = void;
    bool operator()(const KeyView& a, const KeyView& b) const { return a < b; }
  };
  struct Claimed {
    int64_t version = 0;
    int64_t start = 0;
    absl::Duration seen;  // on the monotonic clock
  };
  static Key KeyOf(absl::string_view job, absl::string_view variable) {
    return {std::string(job), std::string(variable)};
  }

  int64_t StartOf(const KeyView& key, int64_t version) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  WaitBoard& waits_;
  const absl::Duration claim_limit_;
  mutable absl::Mutex mutex_;
  std::map<Key, std::shared_ptr<Move>, KeyLess> moves_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, Claimed, KeyLess> claims_ ABSL_GUARDED_BY(mutex_);
  bool arrivals_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
