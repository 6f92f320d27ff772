// Keeps the memory of embedding tables within the budget: evicts rows that were not used for a
// while to disk (COLD_ROWS.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ps_server/base/engine_options.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/persistence/flusher.h"
#include "ps_server/persistence/untracked_memory.h"
#include "ps_server/rows/embedding_stripe.h"
#include "storage/stripe_store.h"

namespace cairn {

// Writes the chosen rows whose records on disk are missing or out of date, and drops them from
// memory; at most `max_rows`. Returns how many rows were evicted; the caller adjusts the counts of
// their table and the budget. All changes of the stripe are written in one batch, so after a crash
// at any point the stripe on disk is in its earlier or its current state. Errors as in
// StripeStore::Write; then no row has been evicted.
absl::StatusOr<uint32_t> EvictRows(StripeStore& store, EmbeddingStripe& stripe,
                                   EmbeddingStripe::Leave which, uint32_t max_rows);

// The reclaimer of the budget. Visits the stripes of all tables in a circle (the clock algorithm):
// a row that was used since the last visit stays in memory.
// Thread safety: every method may be called from several threads at once.
class Evictor {
 public:
  // All arguments must outlive the evictor.
  Evictor(StripeStore& store, Registry& registry, MemoryBudget& budget, Flusher& flusher,
          const EngineOptions& options);
  ~Evictor() { Stop(); }

  // Called before the stored variables are loaded: leaves room in the budget for later charges.
  void ExpectLoad();
  // kResourceExhausted: the system refuses a thread.
  absl::Status Start();
  void Stop();
  // Runs `work` while the evictor writes and drops nothing. A running round ends with its current
  // stripe.
  absl::Status Exclusively(absl::FunctionRef<absl::Status()> work);
  // Like Exclusively, but a running round ends as usual.
  absl::Status BetweenRounds(absl::FunctionRef<absl::Status()> work);
  // The number of calls that wait in Exclusively.
  int32_t waiting() const { return waiting_.load(); }

 private:
  void Loop();
  // Frees memory until no more than `goal_bytes` are in use, or a call waits in Exclusively. False:
  // nothing could be evicted.
  absl::StatusOr<bool> Round(int64_t goal_bytes);
  // Evicts rows of one stripe. Returns the freed bytes.
  absl::StatusOr<int64_t> Visit(Variable& variable, EmbeddingStripe& stripe, int64_t goal_bytes);
  // Changes the charge to the budget from `charged_bytes` to `bytes`.
  void Charge(int64_t& charged_bytes, int64_t bytes);
  // Bytes to charge for the filters and indexes that find cold rows.
  int64_t LookupBytes() const;
  // Charges the budget for the lookup of cold rows and for UntrackedMemory.
  void ChargeServer(const std::vector<std::shared_ptr<Variable>>& tables);
  // Returns memory that rows no longer use, and memory that malloc retains, to the system if more
  // is resident than the budget allows.
  void ReturnMemory(const std::vector<std::shared_ptr<Variable>>& tables);
  // Called before the first row is evicted.
  absl::Status Prepare();
  std::vector<std::shared_ptr<Variable>> Tables() const;

  StripeStore& store_;
  Registry& registry_;
  MemoryBudget& budget_;
  Flusher& flusher_;
  const EngineOptions& options_;
  std::atomic<bool> stopping_{false};
  std::atomic<int32_t> waiting_{0};
  absl::Mutex turn_;  // held while rows are evicted; guards the members below
  bool prepared_ = false;
  UntrackedMemory untracked_;
  int64_t untracked_bytes_ = 0;  // charged for UntrackedMemory
  int64_t lookup_bytes_ = 0;     // charged for the lookup of cold rows
  absl::Duration trimmed_;       // last malloc_trim, on the monotonic clock
  uint32_t hand_variable_ = 0;
  uint32_t hand_bucket_ = 0;
  std::thread thread_;
};

}  // namespace cairn
