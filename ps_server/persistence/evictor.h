// Keeps the memory of embedding tables within the budget: rows that were not used for a while leave
// it for the disk (COLD_ROWS.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
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
#include "ps_server/persistence/resident_rest.h"
#include "ps_server/rows/embedding_stripe.h"
#include "storage/stripe_store.h"

namespace cairn {

// Writes those of the stripe's rows that the disk has not, and drops them; `max_rows` at most.
// Returns how many have gone, which their table and budget have yet to count. The stripe is written
// whole, so it is what it was, or what it is now, after a crash at any point. Errors as
// StripeStore::Write; no row has gone then.
absl::StatusOr<uint32_t> EvictRows(StripeStore& store, EmbeddingStripe& stripe,
                                   EmbeddingStripe::Leave which, uint32_t max_rows);

// The budget's reclaimer. It goes round all stripes of all tables like the hand of a clock: a row
// that was used since it last came by stays.
// Thread safety: every method may be called from several threads at once.
class Evictor {
 public:
  // All outlive the evictor.
  Evictor(StripeStore& store, Registry& registry, MemoryBudget& budget, Flusher& flusher,
          const EngineOptions& options);
  ~Evictor() { Stop(); }

  // Before what is stored is loaded: leaves room for what will be charged.
  void ExpectLoad();
  void Start();
  void Stop();
  // Runs `work` while it writes and drops nothing.
  absl::Status Exclusively(absl::FunctionRef<absl::Status()> work);

 private:
  void Loop();
  // Frees memory until no more than `goal_bytes` are in use. False: nothing could go.
  absl::StatusOr<bool> Round(int64_t goal_bytes);
  // One stripe's part of it.
  absl::StatusOr<int64_t> Visit(Variable& variable, EmbeddingStripe& stripe, int64_t goal_bytes);
  // Charges the budget with `bytes` in place of `charged_bytes`.
  void Charge(int64_t& charged_bytes, int64_t bytes);
  // What finding cold rows is charged.
  int64_t LookupBytes() const;
  // Charges the budget with what cold rows need to be found, and with the ResidentRest.
  void ChargeServer(const std::vector<std::shared_ptr<Variable>>& tables);
  // Memory that rows have left, and what malloc keeps, go back to the system where more is resident
  // than is to be.
  void ReturnMemory(const std::vector<std::shared_ptr<Variable>>& tables);
  // Before the first row leaves memory.
  absl::Status Prepare();
  std::vector<std::shared_ptr<Variable>> Tables() const;

  StripeStore& store_;
  Registry& registry_;
  MemoryBudget& budget_;
  Flusher& flusher_;
  const EngineOptions& options_;
  std::atomic<bool> stopping_{false};
  absl::Mutex turn_;  // held while rows leave; guards what follows
  bool prepared_ = false;
  ResidentRest rest_;
  int64_t rest_bytes_ = 0;    // charged
  int64_t lookup_bytes_ = 0;  // for finding cold rows, charged
  absl::Duration trimmed_;    // when, on the monotonic clock
  uint32_t hand_variable_ = 0;
  uint32_t hand_bucket_ = 0;
  std::thread thread_;
};

}  // namespace cairn
