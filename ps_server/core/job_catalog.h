// The jobs and variables of one server: changes them in memory and on disk together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps_server/base/exclusive_slot.h"
#include "ps_server/base/server_info.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/moves/members.h"
#include "ps_server/moves/moves.h"
#include "ps_server/persistence/evictor.h"
#include "ps_server/persistence/flusher.h"
#include "storage/stripe_store.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once, except NoteId.
class JobCatalog {
 public:
  // The arguments must outlive this object.
  JobCatalog(const ServerInfo& info, StripeStore& store, Registry& registry, Flusher& flusher,
             Evictor& evictor, Moves& moves, const Members& members, WaitBoard& waits)
      : info_(info),
        store_(store),
        registry_(registry),
        flusher_(flusher),
        evictor_(evictor),
        moves_(moves),
        members_(members),
        waits_(waits) {}

  const ServerInfo& info() const { return info_; }
  StripeStore& store() { return store_; }
  Registry& registry() { return registry_; }
  WaitBoard& waits() { return waits_; }
  // kFailedPrecondition: this server has left the cluster and accepts no rows.
  absl::Status CheckStays() const { return members_.CheckStays(); }

  // The right to change which variables exist: one create_variables, drop_job, end of a restore or
  // of a move at a time. kUnavailable after disk_wait: names the call that holds it.
  absl::StatusOr<ExclusiveSlot::Held> TakeSlot(absl::string_view what);
  // The id of the next new variable. The caller holds the slot.
  uint32_t next_id() const { return next_id_; }
  void ReserveIds(size_t count) { next_id_ += static_cast<uint32_t>(count); }
  // At the start: the store has a variable with this id.
  void NoteId(uint32_t id) { next_id_ = std::max(next_id_, id + 1); }

  // Runs `write` while the running epoch pauses. kFailedPrecondition: the job was dropped in the
  // meantime. If `write` fails, the disk has failed, and the server rejects updates from then on.
  absl::Status WriteRecord(const Job& job, absl::FunctionRef<absl::Status()> write);
  // Stores a new variable, then makes it visible. The caller holds the slot.
  absl::Status Add(Job& job, const std::shared_ptr<Variable>& variable);
  // Deletes the job. The caller holds the slot.
  absl::Status Drop(const std::string& job);
  // If no more jobs or workers are allowed: drops jobs that can be dropped without loss (Job::Idle)
  // and whose workers were not seen for a lease. The caller holds the slot.
  absl::Status DropIdleJobs();
  // Drops what this server has of the job if it belongs to another timeline than `timeline`, which
  // ps:0 holds, and has no variables. kFailedPrecondition: it has some.
  absl::Status DropOtherTimeline(const std::string& job, int64_t timeline);
  // Drops what this server has of the job if that is only workers that came back after the job had
  // been dropped: `timeline` begins here.
  absl::Status DropEarlierWorkers(const std::string& job, int64_t timeline);

 private:
  std::shared_ptr<Job> LongestIdle() const;

  const ServerInfo& info_;
  StripeStore& store_;
  Registry& registry_;
  Flusher& flusher_;
  Evictor& evictor_;
  Moves& moves_;
  const Members& members_;
  WaitBoard& waits_;
  ExclusiveSlot slot_;
  uint32_t next_id_ = 1;  // used by the holder of slot_
};

}  // namespace cairn
