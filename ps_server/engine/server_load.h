// Loads the contents of a starting server's store.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ps_server/base/memory_budget.h"
#include "ps_server/core/job_catalog.h"
#include "ps_server/moves/moves.h"

namespace cairn {

// Called before all other calls. Returns the number of variables. Errors as LoadVariables, and
// errors of the store.
absl::StatusOr<int64_t> LoadServer(JobCatalog& catalog, Moves& moves, MemoryBudget& budget);

}  // namespace cairn
