// One parameter server without its network: variables in memory, persistence, RPC semantics.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ps_server/figures.h"
#include "thrift/ParameterServer.h"
#include "thrift/limits.h"

namespace cairn {

// When an acknowledged push survives a crash (DESIGN §4).
enum class Durability { kOff, kSnapshot, kLog, kLogSync };
absl::string_view DurabilityName(Durability durability);
absl::StatusOr<Durability> DurabilityFromName(absl::string_view name);

// What becomes of a push whose gradient holds NaN or infinity. Both count it.
enum class NotFinitePolicy {
  kReject,  // the call fails with NOT_FINITE
  kSkip,    // the call succeeds and applies nothing
};

struct EngineOptions {
  std::string directory;  // RocksDB; made if absent
  int32_t server_index = 0;
  int32_t server_count = 1;
  Durability durability = Durability::kSnapshot;
  absl::Duration snapshot_interval = absl::Seconds(5);
  int64_t memory_budget_bytes = int64_t{4} << 30;
  // The process is the server's alone: what it has resident beyond what is charged counts as used,
  // where rows of tables can make room for it.
  bool own_process = false;
  // How long a call may wait for memory (of others' calls in flight) before RESOURCE_EXHAUSTED.
  absl::Duration memory_wait = absl::Seconds(2);
  // How long a call waits for the disk, or for its turn to change what variables there are. A
  // healthy disk writes a whole memory budget in less.
  absl::Duration disk_wait = absl::Minutes(1);
  NotFinitePolicy not_finite = NotFinitePolicy::kReject;
  absl::Duration lease = absl::Seconds(10);
  // Of all callers together; what is on disk is kept also beyond them.
  int32_t max_jobs = kDefaultMaxJobs;
  int32_t max_workers = kDefaultMaxWorkers;  // of all jobs
  std::string status_page;                   // its URL, told by describe; empty: none
  // Told to clients by hello; whoever reads messages enforces it.
  int64_t max_message_bytes = kDefaultMaxMessageBytes;
  // How often tables are looked at for rows that they are not to keep (RowRules).
  absl::Duration row_rules_interval = absl::Seconds(1);
  std::function<absl::Time()> wall_clock = [] { return absl::Now(); };
  // Called, in the thread of the call, when `drain` has written everything or failed to: the
  // program is to end. Null: the call is refused.
  std::function<void()> drained;
};

// Thread safety: every method may be called from several threads at once.
class Engine {
 public:
  virtual ~Engine() = default;  // as Close, without a report

  // Opens the directory and loads everything in it into memory. Errors as StripeStore::Open, and
  // kResourceExhausted where it does not fit the budget.
  static absl::StatusOr<std::unique_ptr<Engine>> Open(const EngineOptions& options);

  // The calls of the IDL. They throw wire::ServerError and nothing else. Payloads in requests may
  // view the caller's memory; it is read only during the call. Valid as long as the engine.
  virtual wire::ParameterServerIf& service() = 0;

  // Memory for a message of `bytes` that is about to be read or answered: waits up to memory_wait
  // for others to finish, then kResourceExhausted. Pair with ReleaseMessage.
  virtual absl::Status AcquireMessage(int64_t bytes) = 0;
  virtual void ReleaseMessage(int64_t bytes) = 0;

  virtual EngineFigures Figures(FigureDetail detail) const = 0;
  // Why it refuses pushes; ok: it does not. Reads memory alone.
  virtual absl::Status failure() const = 0;
  // Workers of all jobs that neither left nor were silent for a lease.
  virtual int32_t live_workers() const = 0;

  // Deletes what tables are not to keep now, whatever the interval. Errors as failure().
  virtual absl::Status KeepRowRules() { return absl::OkStatus(); }

  // The server is about to stop: calls that read the files of a checkpoint end soon, with STOPPING.
  virtual void CancelLongCalls() {}

  // Refuses new calls (STOPPING), lets running ones end, flushes and closes the store.
  virtual absl::Status Close() = 0;
};

}  // namespace cairn
