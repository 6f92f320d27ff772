// Reads what a store has of variables.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/rows/variable.h"
#include "storage/stripe_store.h"

namespace cairn {

// Stripes of one shard, as `store` has them under the id `stored_id`. A variable of a job that is
// restored has another id there than here.
struct StripeRange {
  const StripeStore* store = nullptr;
  StripeStore* target = nullptr;  // of this server: `store`, or where the job is restored to
  uint32_t stored_id = 0;
  Variable* variable = nullptr;
  uint32_t shard = 0;
  uint32_t first = 0;
  uint32_t end = 0;
};

// Fills the stripes in `ranges`, all of them of this server, on all cores; those never written get
// their initial values. Rows that the budget has no room for are cold then, as are those that were
// it in `store`: `target` has them all. Not while others use them. Errors as LoadVariables.
absl::Status LoadStripeRanges(MemoryBudget& budget, absl::Span<const StripeRange> ranges);

// Fills `variables` from what `store` has of them, on all cores; stripes never written get their
// initial values. Not while others use them. kDataLoss names the variable and the stripe.
absl::Status LoadVariables(StripeStore& store, MemoryBudget& budget,
                           absl::Span<const std::shared_ptr<Variable>> variables);

}  // namespace cairn
