// Timed waits that a jump of the wall clock neither ends nor prolongs. absl::CondVar, absl::Mutex
// and absl::Notification turn a timeout into a wall-clock time and wait for that: a clock set back
// by a day in the middle of a wait of a second makes it a day.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"

namespace cairn {

// A condition variable for an absl::Mutex. Thread safety: every method may be called from several
// threads at once; destroyed when nobody waits any more.
class MonotonicCondVar {
 public:
  // Gives `mutex`, which is held, up, and holds it again when it returns: after a signal, once
  // `deadline` has passed, or for no reason. Callers look at their condition again.
  void WaitUntil(absl::Mutex* mutex, Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Of those that wait for a condition which was changed under their mutex before.
  void SignalAll();

 private:
  std::mutex inner_;
  std::condition_variable signaled_;
};

// Says once that something is to end. Thread safety: every method may be called from several
// threads at once.
class StopFlag {
 public:
  void Stop();
  bool stopped() const;
  // True: stopped, at the latest after `timeout`.
  bool WaitFor(absl::Duration timeout);

 private:
  mutable absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
