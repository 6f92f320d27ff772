// Process-wide settings of Abseil and malloc for a server.
#pragma once

#include <cstdint>

namespace cairn {

// The default budget: 4 GiB, or three quarters of MemoryLimitBytes() if that is less.
int64_t DefaultMemoryBudgetBytes();

// Turns off Abseil's search for lock cycles. Makes malloc use few arenas and return free memory, as
// fits a server with this budget. Call it in main, before any thread is started.
void SetUpServerProcess(int64_t memory_budget_bytes = DefaultMemoryBudgetBytes());

}  // namespace cairn
