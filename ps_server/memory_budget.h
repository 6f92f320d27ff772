// The bytes one server may hold: variables, rows and messages in flight.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/wait_board.h"

namespace cairn {

// A counter with a limit; it owns no memory itself.
// Thread safety: every method may be called from several threads at once. While there is room,
// Acquire and Release are one atomic operation.
class MemoryBudget {
 public:
  // `wait`: how long Acquire waits for others to release. `board`: where it notes that it waits;
  // outlives this, may be null.
  MemoryBudget(int64_t limit_bytes, absl::Duration wait, WaitBoard* board = nullptr);

  // Takes `bytes` (>= 0) or, after the wait, returns kResourceExhausted with reason MEMORY_BUDGET:
  // "`what` needs … bytes; … of … are in use". Bytes beyond the whole limit fail at once.
  absl::Status Acquire(int64_t bytes, absl::string_view what);
  // The same without waiting.
  bool TryAcquire(int64_t bytes);
  void Release(int64_t bytes);

  int64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  int64_t limit_bytes() const { return limit_; }

 private:
  absl::Status Exhausted(int64_t bytes, absl::string_view what) const;

  const int64_t limit_;
  const absl::Duration wait_;
  WaitBoard* const board_;
  std::atomic<int64_t> used_{0};
  std::atomic<int32_t> waiters_{0};
  absl::Mutex mutex_;  // for waiting only
  MonotonicCondVar released_;
};

// Bytes taken from a budget, given back by the destructor. Movable.
class MemoryHold {
 public:
  MemoryHold() = default;
  // Takes over bytes that were acquired already.
  MemoryHold(MemoryBudget& budget, int64_t bytes) : budget_(&budget), bytes_(bytes) {}
  MemoryHold(MemoryHold&& other) noexcept : budget_(other.budget_), bytes_(other.bytes_) {
    other.bytes_ = 0;
  }
  MemoryHold& operator=(MemoryHold&& other) noexcept;
  ~MemoryHold() { Shrink(bytes_); }

  int64_t bytes() const { return bytes_; }
  // Gives `bytes` of it back now.
  void Shrink(int64_t bytes);
  // Leaves `bytes` of it acquired, for the caller to account for, and returns them.
  int64_t Keep(int64_t bytes);

 private:
  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace cairn
