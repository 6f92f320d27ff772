#include "ps_server/engine/process_setup.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace cairn {

void SetUpServerProcess() {
  // Debian's Abseil looks for lock cycles at every lock, which costs 100 ns each (30 ns without).
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // But not what the next request needs at once: a fault a page costs as much as the request.
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
  // What one thread allocates and another frees (RocksDB's blocks and write buffers) leaves holes
  // in every arena: with 8 a core a table larger than memory took 1.7 times its budget.
  mallopt(M_ARENA_MAX, static_cast<int>(std::max(2u, std::thread::hardware_concurrency() / 2)));
}

int64_t DefaultMemoryBudgetBytes() {
  constexpr int64_t kMaxBytes = int64_t{4} << 30;
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return kMaxBytes;
  return std::min(kMaxBytes, pages * page_bytes / 4 * 3);
}

// Large blocks go back to the system when they are freed. Left alone, malloc raises this threshold
// to 32 MiB and keeps up to 64 MiB in each of 8 arenas a core, which no memory budget sees. The
// holes that smaller blocks leave weigh more in a small budget: at 128 KiB instead of 1 MiB rows
// had a tenth more of one of 128 MiB.
void SetLargeBlocks(int64_t memory_budget_bytes) {
  constexpr int64_t kShare = 1024;
  mallopt(M_MMAP_THRESHOLD,
          static_cast<int>(std::clamp<int64_t>(memory_budget_bytes / kShare, 128 << 10, 1 << 20)));
}

}  // namespace cairn
