// Timed waits that a jump of the wall clock neither shortens nor prolongs. absl::CondVar,
// absl::Mutex and absl::Notification convert a timeout to a wall-clock time and wait for that: if
// the clock is set back by a day during a one-second wait, the wait takes a day.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"

namespace cairn {

// A condition variable for an absl::Mutex. Thread safety: every method may be called from several
// threads at once. Destroy it only when no thread waits.
class MonotonicCondVar {
 public:
  // Releases `mutex`, which the caller holds, and acquires it again before it returns: after a
  // signal, when `deadline` has passed, or spuriously. Callers must check their condition again. An
  // Interruption of this thread is asked meanwhile.
  void WaitUntil(absl::Mutex* mutex, Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Wakes all waiting threads. Change the condition under their mutex before the call.
  void SignalAll();

 private:
  std::mutex inner_;
  std::condition_variable signaled_;
};

// Signals once that something must stop. Thread safety: every method may be called from several
// threads at once.
class StopFlag {
 public:
  void Stop();
  bool stopped() const;
  // Waits for up to `timeout`. True if stopped.
  bool WaitFor(absl::Duration timeout);

 private:
  mutable absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
