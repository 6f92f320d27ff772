// Reads what a store has of variables.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ps_server/memory_budget.h"
#include "ps_server/variable.h"
#include "storage/stripe_store.h"

namespace cairn {

// Fills `variables` from what `store` has of them, on all cores; stripes never written get their
// initial values. Not while others use them. kDataLoss names the variable and the stripe;
// kResourceExhausted where the rows do not fit the budget.
absl::Status LoadVariables(const StripeStore& store, MemoryBudget& budget,
                           absl::Span<const std::shared_ptr<Variable>> variables);

}  // namespace cairn
