// The parts of one server. Calls that move rows use only `rows` and `order` of them; calls that
// change what the server holds use the rest.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics/slotted.h"
#include "ps_server/base/counters.h"
#include "ps_server/base/engine_options.h"
#include "ps_server/base/exclusive_slot.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/base/rpc_meter.h"
#include "ps_server/base/wait_board.h"
#include "ps_server/core/admitted.h"
#include "ps_server/core/ordered_call.h"
#include "ps_server/core/row_access.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/moves/members.h"
#include "ps_server/moves/moves.h"
#include "ps_server/persistence/evictor.h"
#include "ps_server/persistence/flusher.h"
#include "ps_server/persistence/row_expirer.h"
#include "storage/stripe_store.h"

namespace cairn {

// Thread safety: as its members; the plain ones are set before the first call.
struct ServerCore {
  ServerCore(const EngineOptions& engine_options, std::unique_ptr<StripeStore> stripe_store);

  const EngineOptions options;
  const std::string name;  // "ps:0", for messages
  const std::unique_ptr<StripeStore> store;
  const int64_t boot_id;         // > 0; of this start alone, also where the directory was made anew
  const absl::Duration started;  // on the monotonic clock
  WaitBoard waits;
  MemoryBudget budget;
  Registry registry;
  Flusher flusher;
  Evictor evictor;
  RowExpirer row_expirer;
  Counters counters;
  RpcMeter rpcs;
  Histogram staleness{StalenessBounds()};  // of each shard that was pushed

  Moves moves;
  Members members;

  // The parts above that data calls use.
  const RowAccess rows;
  UpdateOrder order;

  ExclusiveSlot create_slot;            // one create_variables, drop_job or restore's end at a time
  uint32_t next_variable_id = 1;        // of whoever has create_slot
  ExclusiveSlot checkpoint_slot;        // one checkpoint, drop_checkpoint or restore at a time
  std::atomic<bool> cancelled = false;  // calls that read the files of a checkpoint are to end

  // One above the highest index that a map may name.
  int32_t most_servers() const { return std::max(options.server_count, kMaxServers); }
  bool applied_is_durable() const { return options.durability == Durability::kOff; }
};

// Bytes that the store keeps in memory for a server with this budget.
struct StoreMemory {
  size_t block_cache_bytes = 0;
  size_t write_buffer_bytes = 0;
  int64_t total_bytes = 0;
};
StoreMemory StoreMemoryOf(int64_t memory_budget_bytes);

// kFailedPrecondition: REBOOTED (another boot, or no hello yet), FENCED. Renews the worker's lease.
absl::StatusOr<Admitted> Admit(ServerCore& core, const wire::Caller& caller);

// To change what variables there are. kUnavailable after disk_wait: names who has the slot.
absl::StatusOr<ExclusiveSlot::Held> TakeCreateSlot(ServerCore& core, absl::string_view what);

// boot_id, and where known applied, durable and the steps. Both may be null.
void FillState(const ServerCore& core, Job* job, const Session* session, wire::ServerState& state);

}  // namespace cairn
