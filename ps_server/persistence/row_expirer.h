// Deletes rows that their tables' rules no longer keep (ROW_RULES.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/base/engine_options.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/persistence/evictor.h"
#include "ps_server/persistence/flusher.h"
#include "storage/stripe_store.h"

namespace cairn {

// Deletes some thousand rows at a time, in one batch with everything else that their stripe
// changed: after a crash at any point the stripe on disk is in its earlier or its current state.
// Thread safety: every method may be called from several threads at once.
class RowExpirer {
 public:
  // All arguments must outlive this object.
  RowExpirer(StripeStore& store, Registry& registry, MemoryBudget& budget, Flusher& flusher,
             Evictor& evictor, const EngineOptions& options)
      : store_(store),
        registry_(registry),
        budget_(budget),
        flusher_(flusher),
        evictor_(evictor),
        options_(options) {}
  ~RowExpirer() { Stop(); }

  // Checks every table once per options.row_rules_interval. kResourceExhausted: the system refuses
  // a thread.
  absl::Status Start();
  void Stop();
  // Checks every table once. Errors as in Flusher::Refuse. Also kResourceExhausted without a
  // failure: there is no memory to look for rows; a later call tries again.
  absl::Status RunOnce();

 private:
  void Loop();
  // Called before the first row is deleted.
  absl::Status Prepare();
  absl::Status Visit(Variable& variable, EmbeddingStripe& stripe);
  // Parks old rows (RowAges::Park); the caller holds writing().
  absl::Status Park(Variable& variable, EmbeddingStripe& stripe);
  // Deletes the rows of one stripe that exceed the table's rules; the caller holds writing().
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
  bool prepared_ = false;  // used only inside Evictor::Exclusively
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace cairn
