#include "ps_server/engine/process_setup.h"

#include <malloc.h>

#include <algorithm>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "common/memory_limit.h"

namespace cairn {

void SetUpServerProcess(int64_t memory_budget_bytes) {
  // Debian's Abseil looks for lock cycles at every lock, which costs 100 ns each (30 ns without).
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Keeps 8 MiB for the next requests: otherwise a page fault for each page would cost as much as a
  // request.
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
  // Memory that one thread allocates and another frees (RocksDB's blocks and write buffers)
  // fragments every arena. With the default of 8 arenas per core, a table larger than memory took
  // 1.7 times its budget.
  mallopt(M_ARENA_MAX, static_cast<int>(std::max(2u, std::thread::hardware_concurrency() / 2)));
  // Blocks from this size on return to the system when they are freed. By default, malloc raises
  // the size to 32 MiB and keeps up to 64 MiB in each of 8 arenas per core, which no memory budget
  // counts. Fragmentation by smaller blocks matters more if the budget is small: of a budget of
  // 128 MiB, rows got a tenth more with a size of 128 KiB than with one of 1 MiB.
  constexpr int64_t kShare = 1024;
  mallopt(M_MMAP_THRESHOLD,
          static_cast<int>(std::clamp<int64_t>(memory_budget_bytes / kShare, 128 << 10, 1 << 20)));
}

int64_t DefaultMemoryBudgetBytes() {
  constexpr int64_t kMaxBytes = int64_t{4} << 30;
  return std::min(kMaxBytes, MemoryLimitBytes() / 4 * 3);
}

}  // namespace cairn
