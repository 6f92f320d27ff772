// Records which of this client's pushes and assigns one server has, and which must be replayed
// after it restarts (EXACTLY_ONCE.md). Only decides: it sends nothing, and does not look into the
// retained calls.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/time/time.h"

namespace cairn {

struct DataCall;

// One server's part of one sequence, kept until it is durable there.
struct RetainedPart {
  int64_t sequence = 0;
  int64_t bytes = 0;               // memory taken
  std::shared_ptr<DataCall> call;  // kPush or kAssign; keeps its payloads alive
  absl::Time since;                // when it was acknowledged
};

// Which parts to replay to a restarted server.
struct ReplayPlan {
  // > 0: the parts in [first_lost, last_lost] are neither on the server nor retained here.
  int64_t first_lost = 0, last_lost = 0;
  std::vector<RetainedPart> parts;  // replay in this order, before any other call
};

// Invariant: every sequence up to through() with a part on this server was acknowledged; the parts
// above released() are retained, in order.
// Thread safety: none.
class PushLedger {
 public:
  // Starts after sequence `through` with boot `boot_id` of the server. `last_part` is the last
  // sequence with a part here; it is durable.
  void Begin(int64_t boot_id, int64_t last_part, int64_t through);

  // The boot id of the server that has every acknowledged part.
  int64_t boot_id() const { return boot_id_; }
  // Whether a restarted server is being sent the parts that it lacks. One renewal at a time.
  bool renewing() const { return renewing_; }
  void BeginRenewal() { renewing_ = true; }
  void GiveUpRenewal() { renewing_ = false; }
  // Boot `boot_id` has every acknowledged part.
  void EndRenewal(int64_t boot_id);
  // Whether an acknowledgement from that boot is valid. It is not where the boot's memory is gone,
  // or where a renewal has begun that does not know of the push.
  bool Counts(int64_t boot_id) const { return !renewing_ && boot_id == boot_id_; }

  // Highest acknowledged sequence with a part here; the next part names it as `after`.
  int64_t last_part() const { return last_part_; }
  // Caller.through: a server with every acknowledged part lacks no part up to this sequence.
  int64_t through() const { return through_; }
  // Parts up to this sequence cannot be replayed.
  int64_t released() const { return released_; }
  // Sequence of the oldest retained part; 0: none.
  int64_t oldest() const { return retained_.empty() ? 0 : retained_.front().sequence; }
  absl::Time oldest_since() const;
  int64_t bytes() const { return bytes_; }

  // The server has applied a part that is not durable yet; retains `part`. Returns the bytes of a
  // retained part of the same sequence that it replaces.
  int64_t Acknowledged(RetainedPart part);
  // The server has applied its part, which is durable or need not be retained.
  void AcknowledgedUnretained(int64_t sequence);
  // The server has no part of `sequence`, or has refused its part.
  void NoPart(int64_t sequence);
  // Removes and returns the parts that are durable on the server; destroying them frees their
  // memory.
  std::vector<RetainedPart> TakeDurable(int64_t durable);

  // Plans the replay after boot `boot_id` answered hello with `applied`. If the boot is the known
  // one, missing parts were lost otherwise than by a restart (the job was dropped), and nothing is
  // replayed.
  ReplayPlan PlanReplay(int64_t boot_id, int64_t applied) const;
  // Caller.through for a replayed part: by then the server has every earlier part.
  static int64_t ThroughOf(const RetainedPart& part) { return part.sequence - 1; }

 private:
  int64_t boot_id_ = 0;
  bool renewing_ = false;
  int64_t last_part_ = 0;
  int64_t through_ = 0;
  int64_t released_ = 0;
  int64_t bytes_ = 0;
  std::deque<RetainedPart> retained_;
};

}  // namespace cairn
