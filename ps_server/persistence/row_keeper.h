// Deletes rows that their tables are not to keep (ROW_RULES.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/base/engine_options.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/persistence/evictor.h"
#include "ps_server/persistence/flusher.h"
#include "storage/stripe_store.h"

namespace cairn {

// Rows go some thousands at a time, each time in one batch with everything else that their stripe
// changed: it is what it was, or what it is now, after a crash at any point.
// Thread safety: every method may be called from several threads at once.
class RowKeeper {
 public:
  // All outlive the keeper.
  RowKeeper(StripeStore& store, Registry& registry, MemoryBudget& budget, Flusher& flusher,
            Evictor& evictor, const EngineOptions& options)
      : store_(store),
        registry_(registry),
        budget_(budget),
        flusher_(flusher),
        evictor_(evictor),
        options_(options) {}
  ~RowKeeper() { Stop(); }

  // Looks at every table each options.row_rules_interval.
  void Start();
  void Stop();
  // Looks at every table, once. Errors as Flusher::Refuse.
  absl::Status RunOnce();

 private:
  void Loop();
  // Before the first row is deleted.
  absl::Status Prepare();
  absl::Status Visit(Variable& variable, EmbeddingStripe& stripe);
  // What a table has beyond its rules, in one stripe; its writing() held.
  absl::Status Expire(Variable& variable, EmbeddingStripe& stripe);
  absl::Status CrowdOut(Variable& variable, EmbeddingStripe& stripe);
  bool IsCurrent(const Variable& variable) const;
  std::vector<std::shared_ptr<Variable>> Tables() const;

  StripeStore& store_;
  Registry& registry_;
  MemoryBudget& budget_;
  Flusher& flusher_;
  Evictor& evictor_;
  const EngineOptions& options_;
  bool prepared_ = false;  // belongs to whoever has the evictor's turn
  absl::Mutex mutex_;      // guards what follows
  bool stopping_ = false;
  MonotonicCondVar stop_;
  std::thread thread_;
};

}  // namespace cairn
