#include "common/monotonic_cond_var.h"

#include <algorithm>

#include "common/blocking.h"
#include "common/interruption.h"

namespace cairn {
namespace {

// Above this limit steady_clock's arithmetic could overflow. Waiters check their condition again.
constexpr absl::Duration kLongestWait = absl::Hours(1);

}  // namespace

void MonotonicCondVar::WaitUntil(absl::Mutex* mutex, Deadline deadline) {
  const absl::Duration timeout =
      std::min({deadline.Remaining(), kLongestWait, Interruption::LongestWait()});
  {
    const Blocking blocking;
    // Acquired before `mutex` is released, so that a signal after the release finds this thread
    // waiting.
    std::unique_lock<std::mutex> lock(inner_);
    mutex->Unlock();
    signaled_.wait_for(lock, absl::ToChronoNanoseconds(timeout));
  }
  (void)deadline.RemainingInWait();  // before the lock: a signal handler may call this library
  mutex->Lock();
}

void MonotonicCondVar::SignalAll() {
  { const std::lock_guard<std::mutex> lock(inner_); }
  signaled_.notify_all();
}

}  // namespace cairn
