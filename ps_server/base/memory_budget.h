// The bytes one server may hold: variables, rows and messages in flight.
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

// A counter with a limit; it owns no memory itself. One thread, the reclaimer, may make room.
// Thread safety: every method may be called from several threads at once. While there is room,
// Acquire and Release are one atomic operation.
class MemoryBudget {
 public:
  // `wait`: how long Acquire waits for others to release. `board`: where it notes that it waits;
  // outlives this, may be null.
  MemoryBudget(int64_t limit_bytes, absl::Duration wait, WaitBoard* board = nullptr);

  // Takes `bytes` (>= 0) or, after the wait, and once the reclaimer has found nothing that could
  // go, returns kResourceExhausted with reason MEMORY_BUDGET:
  // "`what` needs … bytes; … of … are in use". Bytes beyond the whole limit fail at once. Whoever
  // finds room has it, but while the reclaimer frees some, one that has waited for a tenth of a
  // second goes before all others: much room is never there by itself.
  absl::Status Acquire(int64_t bytes, absl::string_view what);
  // The same without waiting.
  bool TryAcquire(int64_t bytes);
  // … where no more than `limit_bytes` are in use then.
  bool TryAcquireBelow(int64_t bytes, int64_t limit_bytes);
  void Release(int64_t bytes);
  // Takes them even beyond the limit: for what cannot be given up half way, and is little.
  void Force(int64_t bytes) { used_.fetch_add(bytes); }

  // What the reclaimer keeps: it is woken when more than high_bytes() are in use, and frees until
  // no more than low_bytes() are.
  int64_t high_bytes() const { return limit_ / 100 * 95; }
  int64_t low_bytes() const { return limit_ / 100 * 92; }
  // What may be in use while rows come to memory by themselves, as at a start: low_bytes(), less
  // what the reclaimer is going to charge.
  int64_t load_bytes() const { return low_bytes() - expected_.load(std::memory_order_relaxed); }
  void Expect(int64_t bytes) { expected_.store(bytes, std::memory_order_relaxed); }
  // From BeginReclaiming to EndReclaiming Acquire waits for the reclaimer, `patience` at most.
  void BeginReclaiming(absl::Duration patience);
  void EndReclaiming();
  // The reclaimer waits until there is something to do, `pause` at most, where the last round freed
  // nothing and nobody new waits even then, and begins a round. Returns how much may be in use at
  // its end; nullopt: EndReclaiming.
  std::optional<int64_t> AwaitShortage(absl::Duration pause);
  void EndRound(bool freed);

  // How much variables may take, rows of tables left out, when they are created. The rest is for
  // calls: where variables have all of it no push would find room for its message.
  int64_t variables_bytes() const { return limit_ - limit_ / 8; }

  int64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  int64_t limit_bytes() const { return limit_; }

 private:
  using Queue = std::list<absl::Duration>;  // when each began to wait
  // Wakes nobody.
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
  std::atomic<bool> idle_{false};      // the reclaimer waits
  std::atomic<bool> reserved_{false};  // room is for the front of the queue
  absl::Mutex mutex_;                  // for waiting only; guards what follows
  Queue queue_;
  MonotonicCondVar released_;
  MonotonicCondVar shortage_;
  bool reclaiming_ = false;
  absl::Duration patience_;
  int64_t wanted_ = 0;  // the most that one who waits wants
  int64_t rounds_asked_ = 0;
  int64_t rounds_begun_ = 0;
  int64_t rounds_ended_ = 0;
  bool freed_ = false;   // by the last round
  bool futile_ = false;  // it freed nothing, and since then there was no room
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
  // Takes over `bytes` more that were acquired from the same budget.
  void Grow(int64_t bytes) { bytes_ += bytes; }
  // Leaves `bytes` of it acquired, for the caller to account for, and returns them.
  int64_t Keep(int64_t bytes);

 private:
  MemoryBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace cairn
