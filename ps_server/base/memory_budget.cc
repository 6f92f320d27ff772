#include "ps_server/base/memory_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

constexpr absl::Duration kTurnAfter = absl::Milliseconds(100);

}  // namespace

MemoryBudget::MemoryBudget(int64_t limit_bytes, absl::Duration wait, WaitBoard* board)
    : limit_(limit_bytes), wait_(wait), board_(board) {}

bool MemoryBudget::TryAcquireBelow(int64_t bytes, int64_t limit_bytes) {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_bytes - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

bool MemoryBudget::TryAcquire(int64_t bytes) {
  if (bytes == 0) return true;  // also while Force has taken more than the limit
  if (reserved_.load() || !TryAcquireBelow(bytes, limit_)) return false;
  // As with waiters_ below: either the reclaimer sees the new used_, or this thread sees idle_.
  if (used_.load() > high_bytes() && idle_.load()) {
    absl::MutexLock lock(&mutex_);
    shortage_.SignalAll();
  }
  return true;
}

absl::Status MemoryBudget::Acquire(int64_t bytes, absl::string_view what) {
  if (TryAcquire(bytes)) return absl::OkStatus();
  if (bytes > limit_) return Exhausted(bytes, what);
  const Deadline deadline = Deadline::In(wait_);
  const WaitBoard::Waiting waiting(board_, "memory",
                                   absl::StrCat(bytes, " bytes of memory for ", what, "; ",
                                                used_bytes(), " of ", limit_, " are in use"));
  // Allocates, so before this call counts as waiting.
  Queue call = {{.since = MonotonicNow(), .bytes = bytes}};
  absl::MutexLock lock(&mutex_);
  // Release reads waiters_ after it lowers used_; both are sequentially consistent, so either this
  // thread sees the free memory or Release sees this thread.
  waiters_.fetch_add(1);
  const int64_t round = rounds_begun_ + 1;  // the first round that knows of this call
  rounds_asked_ = round;
  const Deadline patience = Deadline::In(std::max(patience_, wait_));
  const auto hopeful = [&] {
    return reclaiming_ && !patience.Expired() && (rounds_ended_ < round || freed_);
  };
  shortage_.SignalAll();
  const Queue::const_iterator place = call.begin();
  queue_.splice(queue_.end(), call);
  const Deadline turn = Deadline::In(kTurnAfter);
  bool acquired = TryAcquireInTurn(place, bytes);
  while (!acquired && (!deadline.Expired() || hopeful())) {
    const Deadline end = deadline.Expired() ? patience : deadline;
    released_.WaitUntil(&mutex_, turn.Expired() ? end : Deadline::Earlier(turn, end));
    acquired = TryAcquireInTurn(place, bytes);
  }
  queue_.erase(place);
  NoteTurn();
  if (!queue_.empty()) released_.SignalAll();  // the next call may go first now
  waiters_.fetch_sub(1);
  return acquired ? absl::OkStatus() : Exhausted(bytes, what);
}

bool MemoryBudget::TryAcquireInTurn(Queue::const_iterator place, int64_t bytes) {
  NoteTurn();
  if (reserved_.load() && place != queue_.begin()) return false;
  return TryAcquireBelow(bytes, limit_);
}

// While nothing is freed, the front of the queue may never fit, and the others need not wait for
// it.
void MemoryBudget::NoteTurn() {
  const bool frees = reclaiming_ && (freed_ || rounds_ended_ < rounds_begun_);
  reserved_.store(frees && !queue_.empty() && MonotonicNow() - queue_.front().since >= kTurnAfter);
}

void MemoryBudget::Release(int64_t bytes) {
  if (bytes == 0) return;
  used_.fetch_sub(bytes);
  if (waiters_.load() > 0) {
    absl::MutexLock lock(&mutex_);
    released_.SignalAll();
  }
}

void MemoryBudget::BeginReclaiming(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  reclaiming_ = true;
  patience_ = patience;
}

void MemoryBudget::EndReclaiming() {
  absl::MutexLock lock(&mutex_);
  reclaiming_ = false;
  NoteTurn();
  shortage_.SignalAll();
  released_.SignalAll();
}

std::optional<int64_t> MemoryBudget::AwaitShortage(absl::Duration pause) {
  const Deadline retry = Deadline::In(pause);
  absl::MutexLock lock(&mutex_);
  idle_.store(true);
  while (reclaiming_ && rounds_asked_ <= rounds_begun_) {
    const bool short_of_it = used_.load() > high_bytes();
    if (!short_of_it) futile_ = false;
    if ((short_of_it && !futile_) || retry.Expired()) break;
    shortage_.WaitUntil(&mutex_, retry);
  }
  idle_.store(false);
  if (!reclaiming_) return std::nullopt;
  ++rounds_begun_;
  NoteTurn();
  const int64_t goal = used_.load() > high_bytes() ? low_bytes() : high_bytes();
  int64_t wanted = 0;
  for (const Call& call : queue_) wanted = std::max(wanted, call.bytes);
  return std::min(goal, limit_ - wanted);
}

void MemoryBudget::EndRound(bool freed) {
  absl::MutexLock lock(&mutex_);
  rounds_ended_ = rounds_begun_;
  freed_ = freed;
  futile_ = !freed && used_.load() > high_bytes();
  if (waiters_.load() > 0 && freed) rounds_asked_ = rounds_begun_ + 1;
  NoteTurn();
  released_.SignalAll();
}

absl::Status MemoryBudget::Exhausted(int64_t bytes, absl::string_view what) const {
  return WithReason(
      ResourceExhausted(
          what, " needs ", bytes, " bytes; ", used_bytes(), " of ", limit_,
          " bytes of memory are in use: raise --memory_budget_bytes (of an in-process server: "
          "storage.memory_budget_bytes) or use more servers"),
      wire::ErrorReason::MEMORY_BUDGET);
}

MemoryHold& MemoryHold::operator=(MemoryHold&& other) noexcept {
  if (this != &other) {
    Shrink(bytes_);
    budget_ = other.budget_;
    bytes_ = other.bytes_;
    other.bytes_ = 0;
  }
  return *this;
}

void MemoryHold::Shrink(int64_t bytes) {
  if (bytes == 0) return;
  budget_->Release(bytes);
  bytes_ -= bytes;
}

int64_t MemoryHold::Transfer(int64_t bytes) {
  bytes_ -= bytes;
  return bytes;
}

}  // namespace cairn
