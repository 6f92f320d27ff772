// The options of one parameter server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ps_server/base/row_clock.h"
#include "thrift/limits.h"

namespace cairn {

// Which crashes an acknowledged push survives.
enum class Durability {
  kOff,       // none: pushes are written at a clean exit only
  kSnapshot,  // those after the next snapshot
  kLog,       // a crash of the process: the push is written before it is acknowledged
  kLogSync,   // a crash of the machine: the push is synced before it is acknowledged
};
absl::string_view DurabilityName(Durability durability);
absl::StatusOr<Durability> DurabilityFromName(absl::string_view name);

// How a server treats a push whose gradient holds NaN or infinity. Both policies count the push.
enum class NotFinitePolicy {
  kReject,  // the call fails with NOT_FINITE
  kSkip,    // the call succeeds and applies nothing
};

struct EngineOptions {
  std::string directory;  // of the RocksDB store; created if absent
  int32_t server_index = 0;
  int32_t server_count = 1;
  Durability durability = Durability::kSnapshot;
  absl::Duration snapshot_interval = absl::Seconds(5);
  // How many bytes of a snapshot are written to RocksDB's log before they are written as tables.
  // The default is about a write buffer of the default memory budget: to flush less makes small
  // tables, whose compaction costs more than the log.
  int64_t logged_snapshot_bytes = int64_t{32} << 20;
  int64_t memory_budget_bytes = int64_t{4} << 30;
  // Set where the server has a process of its own. Resident memory beyond the charged bytes then
  // counts as used, if rows of tables can be evicted to make room for it.
  bool own_process = false;
  // How long a call waits for memory that other calls hold before RESOURCE_EXHAUSTED.
  absl::Duration memory_wait = absl::Seconds(2);
  // How long a call waits for the disk, or for another call that changes the set of variables. A
  // healthy disk writes a whole memory budget in less.
  absl::Duration disk_wait = absl::Minutes(1);
  NotFinitePolicy not_finite = NotFinitePolicy::kReject;
  absl::Duration lease = absl::Seconds(10);
  // Limits on the jobs and workers that callers may create. A server loads everything that its
  // disk holds, also beyond these limits.
  int32_t max_jobs = kDefaultMaxJobs;
  int32_t max_workers = kDefaultMaxWorkers;  // of all jobs together
  std::string status_page;                   // its URL, for `describe`; empty: none
  // Sent to clients by `hello`. The transport enforces it.
  int64_t max_message_bytes = kDefaultMaxMessageBytes;
  // How often the server deletes the rows that their table's RowRules no longer keep. Infinite:
  // never.
  absl::Duration row_rules_interval = absl::Seconds(1);
  // The time at which timelines and incarnations begin.
  std::function<absl::Time()> wall_clock = absl::Now;
  // The time by which rows expire; nullopt: unknown, so that none does.
  std::function<std::optional<absl::Time>()> row_clock = [clock = std::make_shared<RowClock>()] {
    return clock->Now();
  };
  // Called in the thread of a `drain` call after its last write succeeded or failed: the program
  // should exit. Null: the server rejects `drain`.
  std::function<void()> drained;
};

// Bytes that the store keeps in memory for a server with this budget.
struct StoreMemory {
  size_t block_cache_bytes = 0;
  size_t write_buffer_bytes = 0;
  int64_t total_bytes = 0;
};
StoreMemory StoreMemoryOf(int64_t memory_budget_bytes);

}  // namespace cairn
