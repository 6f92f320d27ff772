// What one server has of this client's pushes and assigns, and what it must be sent again after a
// restart (EXACTLY_ONCE.md). Decides only: it sends nothing, and does not look into what it keeps.
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
  int64_t bytes = 0;               // of memory
  std::shared_ptr<DataCall> call;  // kPush or kAssign; owns its payloads
  absl::Time since;                // when it was acknowledged
};

// What is to be done with a server that has been restarted.
struct ReplayPlan {
  // > 0: the parts in [first_lost, last_lost] are neither there nor kept here.
  int64_t first_lost = 0, last_lost = 0;
  std::vector<RetainedPart> parts;  // to be sent, in this order, before anything else
};

// Invariant: every sequence up to through() that has a part on this server was acknowledged; of
// those, the ones above released() are retained, in order.
// Thread safety: none.
class PushLedger {
 public:
  // A start that goes on after sequence `through` with boot `boot_id` of the server; `last_part` is
  // the last with a part here, and is durable.
  void Begin(int64_t boot_id, int64_t last_part, int64_t through);

  // The boot that has everything acknowledged.
  int64_t boot_id() const { return boot_id_; }
  // While a server that was restarted is told and sent what it does not have; one at a time.
  bool renewing() const { return renewing_; }
  void BeginRenewal() { renewing_ = true; }
  void GiveUpRenewal() { renewing_ = false; }
  // Boot `boot_id` has everything acknowledged.
  void EndRenewal(int64_t boot_id);
  // Whether an answer of that boot means what it says: the push of which it tells is not gone with
  // the boot's memory, and not to be sent again by a renewal that has begun without it.
  bool Counts(int64_t boot_id) const { return !renewing_ && boot_id == boot_id_; }

  // Highest sequence with a part here that was acknowledged; the next part names it as `after`.
  int64_t last_part() const { return last_part_; }
  // For Caller.through: no part up to it is missing on a server that has all that was acknowledged.
  int64_t through() const { return through_; }
  // Parts up to this one cannot be sent again.
  int64_t released() const { return released_; }
  // Sequence of the oldest part retained; 0: none is.
  int64_t oldest() const { return retained_.empty() ? 0 : retained_.front().sequence; }
  absl::Time oldest_since() const;
  int64_t bytes() const { return bytes_; }

  // The server has applied its part of `sequence`, which is not durable yet: `part` keeps it. Where
  // one of that sequence was kept already it takes its place, and the bytes of that are returned.
  int64_t Acknowledged(RetainedPart part);
  // The same where it is durable, or where nothing is retained.
  void AcknowledgedForGood(int64_t sequence);
  // The server has no part of `sequence`, or has refused it.
  void NoPart(int64_t sequence);
  // Takes the parts that the server holds durably; their memory is freed by the caller.
  std::vector<RetainedPart> TakeDurable(int64_t durable);

  // Boot `boot_id` answers hello with `applied`. Where it is the one known, what it does not have
  // is gone for another reason than a restart (the job was dropped): nothing is sent again.
  ReplayPlan PlanReplay(int64_t boot_id, int64_t applied) const;
  // Caller.through for a replayed part: everything before it is there by then.
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
