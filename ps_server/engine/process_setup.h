// What a process that serves wants of the libraries below it. For the beginning of main, before
// there are threads.
#pragma once

#include <cstdint>

namespace cairn {

// Abseil's locks look for no cycles, and malloc gives back what nobody needs, with few arenas.
void SetUpServerProcess();

// Of a server that is told none: 4 GiB, or three quarters of the machine's memory, if less.
int64_t DefaultMemoryBudgetBytes();

// Of such a process with a memory budget of so many bytes: how large blocks are that malloc maps by
// themselves.
void SetLargeBlocks(int64_t memory_budget_bytes);

}  // namespace cairn
