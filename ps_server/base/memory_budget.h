// Limits the bytes that one server holds: variables, rows and messages in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/monotonic_cond_var.h"
#include "ps_server/base/wait_board.h"

namespace cairn {

// A counter with a limit; it owns no memory itself. One thread, the reclaimer, may free memory when
// the budget is short.
// Thread safety: every method may be called from several threads at once. While memory is
// available, Acquire and Release are one atomic operation.
class MemoryBudget {
 public:
  // `wait`: how long Acquire waits for other calls to release memory. `board`: where Acquire
  // reports that it waits; must outlive this object, may be null.
  MemoryBudget(int64_t limit_bytes, absl::Duration wait, WaitBoard* board = nullptr);

  // Takes `bytes` (>= 0). If they do not become available within the wait, and the reclaimer finds
  // nothing more to free, returns kResourceExhausted with reason MEMORY_BUDGET: "`what` needs …
  // bytes; … of … are in use". Fails at once if `bytes` exceeds the whole limit. Waiting calls take
  // memory in any order, except that while the reclaimer frees memory, the oldest call that has
  // waited for 100 ms goes first: otherwise smaller calls would take the memory before a large
  // request fits.
  absl::Status Acquire(int64_t bytes, absl::string_view what);
  // Like Acquire, but without waiting.
  bool TryAcquire(int64_t bytes);
  // Like TryAcquire, but fails if more than `limit_bytes` would then be in use.
  bool TryAcquireBelow(int64_t bytes, int64_t limit_bytes);
  void Release(int64_t bytes);
  // Takes `bytes` even beyond the limit, for small amounts in the middle of work that cannot stop
  // half way.
  void Force(int64_t bytes) { used_.fetch_add(bytes); }

  // The reclaimer's thresholds: it wakes when more than high_bytes() are in use, and frees memory
  // until no more than low_bytes() are.
  int64_t high_bytes() const { return limit_ / 100 * 95; }
  int64_t low_bytes() const { return limit_ / 100 * 92; }
  // How much may be in use while a server loads rows on its own account, for example at its start:
  // low_bytes(), less the bytes that the reclaimer is expected to charge.
  int64_t load_bytes() const { return low_bytes() - expected_.load(std::memory_order_relaxed); }
  void Expect(int64_t bytes) { expected_.store(bytes, std::memory_order_relaxed); }
  // Between BeginReclaiming and EndReclaiming, Acquire waits for the reclaimer, at most `patience`.
  void BeginReclaiming(absl::Duration patience);
  void EndReclaiming();
  // Called by the reclaimer. Waits until memory is short or a call waits for it, at most `pause`,
  // then begins a round. If the last round freed nothing, a continuing shortage does not end the
  // wait; a new waiting call does. Returns how many bytes may be in use at the end of the round, or
  // nullopt after EndReclaiming.
  std::optional<int64_t> AwaitShortage(absl::Duration pause);
  void EndRound(bool freed);

  // How many bytes new variables may take, without the rows of tables. The rest is for calls: if
  // variables took the whole budget, no push would find memory for its message.
  int64_t variables_bytes() const { return limit_ - limit_ / 8; }

  int64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  int64_t limit_bytes() const { return limit_; }

 private:
  struct Call {
    absl::Duration since;  // when it began to wait
    int64_t bytes = 0;
  };
  using Queue = std::list<Call>;
  // Does not wake other waiters.
  bool TryAcquireInTurn(Queue::const_iterator place, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Exhausted(int64_t bytes, absl::string_view what) const;

  const int64_t limit_;
  const absl::Duration wait_;
  WaitBoard* const board_;
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> expected_{0};
  std::atomic<int32_t> waiters_{0};
  std::atomic<bool> idle_{false};      // the reclaimer is waiting
  std::atomic<bool> reserved_{false};  // free memory is for the front of the queue
  absl::Mutex mutex_;                  // used only while waiting; guards the members below
  Queue queue_;
  MonotonicCondVar released_;
  MonotonicCondVar shortage_;
  bool reclaiming_ = false;
  absl::Duration patience_;
  int64_t rounds_asked_ = 0;
  int64_t rounds_begun_ = 0;
  int64_t rounds_ended_ = 0;
  bool freed_ = false;   // the last round freed memory
  bool futile_ = false;  // the last round freed nothing, and memory has been short since
};

// Bytes taken from a budget; the destructor releases them. Movable.
class MemoryHold {
 public:
  MemoryHold() = default;
  // Takes ownership of bytes that are already acquired.
  MemoryHold(MemoryBudget& budget, int64_t bytes) : budget_(&budget), bytes_(bytes) {}
  MemoryHold(MemoryHold&& other) noexcept : budget_(other.budget_), bytes_(other.bytes_) {
    other.bytes_ = 0;
  }
  MemoryHold& operator=(MemoryHold&& other) noexcept;
  ~MemoryHold() { Shrink(bytes_); }

  int64_t bytes() const { return bytes_; }
  // Releases `bytes` of the held bytes now.
  void Shrink(int64_t bytes);
  // Takes ownership of `bytes` more, already acquired from the same budget.
  void Grow(int64_t bytes) { bytes_ += bytes; }
  // Takes ownership of `bytes` that `other` holds, of the same budget.
  void Take(MemoryHold& other, int64_t bytes) {
    budget_ = other.budget_;
    bytes_ += other.Transfer(bytes);
  }
  // Gives up ownership of `bytes` without releasing them: the caller accounts for them now. Returns
  // `bytes`.
  int64_t Transfer(int64_t bytes);

 private:
  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace cairn
