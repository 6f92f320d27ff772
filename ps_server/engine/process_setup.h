// Process-wide settings of Abseil and malloc for a server. Call them at the beginning of main,
// before any thread is started.
#pragma once

#include <cstdint>

namespace cairn {

// Turns off Abseil's search for lock cycles. Makes malloc use few arenas and return free memory.
void SetUpServerProcess();

// The default budget: 4 GiB, or three quarters of the machine's memory if that is less.
int64_t DefaultMemoryBudgetBytes();

// Sets the size from which malloc maps each block separately, for a server with this budget.
void SetLargeBlocks(int64_t memory_budget_bytes);

}  // namespace cairn
