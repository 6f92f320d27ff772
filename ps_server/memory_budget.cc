#include "ps_server/memory_budget.h"

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "thrift/errors.h"

namespace cairn {

MemoryBudget::MemoryBudget(int64_t limit_bytes, absl::Duration wait, WaitBoard* board)
    : limit_(limit_bytes), wait_(wait), board_(board) {}

bool MemoryBudget::TryAcquire(int64_t bytes) {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

absl::Status MemoryBudget::Acquire(int64_t bytes, absl::string_view what) {
  if (TryAcquire(bytes)) return absl::OkStatus();
  if (bytes > limit_) return Exhausted(bytes, what);
  const Deadline deadline = Deadline::In(wait_);
  const WaitBoard::Waiting waiting(board_, "memory",
                                   absl::StrCat(bytes, " bytes of memory for ", what, "; ",
                                                used_bytes(), " of ", limit_, " are in use"));
  absl::MutexLock lock(&mutex_);
  // Release looks at waiters_ after it has lowered used_; both are sequentially consistent, so
  // either this thread sees the room or Release sees this thread.
  waiters_.fetch_add(1);
  bool acquired = TryAcquire(bytes);
  while (!acquired && !deadline.Expired()) {
    released_.WaitUntil(&mutex_, deadline);
    acquired = TryAcquire(bytes);
  }
  waiters_.fetch_sub(1);
  return acquired ? absl::OkStatus() : Exhausted(bytes, what);
}

void MemoryBudget::Release(int64_t bytes) {
  if (bytes == 0) return;
  used_.fetch_sub(bytes);
  if (waiters_.load() > 0) {
    absl::MutexLock lock(&mutex_);
    released_.SignalAll();
  }
}

absl::Status MemoryBudget::Exhausted(int64_t bytes, absl::string_view what) const {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          what, " needs ", bytes, " bytes; ", used_bytes(), " of ", limit_,
          " bytes of memory are in use: raise --memory_budget_bytes or use more servers")),
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

int64_t MemoryHold::Keep(int64_t bytes) {
  bytes_ -= bytes;
  return bytes;
}

}  // namespace cairn
