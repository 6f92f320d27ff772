// Loads stored variables.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/rows/variable.h"
#include "storage/stripe_store.h"

namespace cairn {

// Stripes of one shard, which `store` has under the id `stored_id`. A variable of a restored job
// has another id in `store` than on this server.
struct StripeRange {
  const StripeStore* store = nullptr;
  StripeStore* target = nullptr;  // this server's store: `store`, or the one that the job is
                                  // restored to
  uint32_t stored_id = 0;
  Variable* variable = nullptr;
  uint32_t shard = 0;
  uint32_t first = 0;
  uint32_t end = 0;
};

// Fills the stripes in `ranges`, all on this server, using all cores; stripes that were never
// written get their initial values. Rows that do not fit into the budget become cold, and rows that
// are cold in `store` stay cold; `target` then has all of them. No other thread may use the
// stripes. Errors as in LoadVariables.
absl::Status LoadStripeRanges(MemoryBudget& budget, absl::Span<const StripeRange> ranges);

// Fills `variables` from their records in `store`, using all cores; stripes that were never written
// get their initial values. No other thread may use the variables. kDataLoss names the variable and
// the stripe.
absl::Status LoadVariables(StripeStore& store, MemoryBudget& budget,
                           absl::Span<const std::shared_ptr<Variable>> variables);

}  // namespace cairn
