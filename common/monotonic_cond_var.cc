#include "common/monotonic_cond_var.h"

#include <algorithm>
#include <chrono>

#include "common/blocking.h"

namespace cairn {
namespace {

// Beyond it steady_clock's arithmetic could overflow; waiters look again then.
constexpr absl::Duration kLongestWait = absl::Hours(1);

}  // namespace

void MonotonicCondVar::WaitUntil(absl::Mutex* mutex, Deadline deadline) {
  const absl::Duration timeout = std::min(deadline.Remaining(), kLongestWait);
  {
    const Blocking blocking;
    // Taken before `mutex` is given up: a signal after that finds this thread waiting.
    std::unique_lock<std::mutex> lock(inner_);
    mutex->Unlock();
    signaled_.wait_for(lock, absl::ToChronoNanoseconds(timeout));
  }
  mutex->Lock();
}

void MonotonicCondVar::SignalAll() {
  { const std::lock_guard<std::mutex> lock(inner_); }
  signaled_.notify_all();
}

}  // namespace cairn
