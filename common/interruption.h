// Ends a thread's waits from outside: for bindings to languages whose signal handlers run only
// after a call into the library has returned.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// While in scope, every deadline that this thread checks counts as expired once `requested` has
// returned true, so that the thread's waits end with kDeadlineExceeded. An inner scope hides the
// outer one. `requested` runs only in waits (MonotonicCondVar, sockets), while the thread does not
// hold the mutex of the wait, and in CheckNow. `requested` may itself make scopes and wait: nothing
// interrupts these waits, and `requested` is not called again in the meantime. Thread safety: none;
// `requested` runs on the thread that made the scope.
class Interruption {
 public:
  // How long a wait lasts before `requested` is called, and between two calls.
  static constexpr absl::Duration kInterval = absl::Milliseconds(100);

  using Requested = bool (*)(void* context);

  // `requested` may be null: nothing interrupts.
  Interruption(Requested requested, void* context);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Whether `requested` has returned true in this scope.
  bool interrupted() const { return interrupted_; }

  // The longest time for which this thread may block before it must check its deadline again.
  static absl::Duration LongestWait();
  // Whether this thread is interrupted. Never calls `requested`, so the thread may hold locks.
  // `now_ns` is the monotonic clock.
  static bool Interrupted(int64_t now_ns);
  // Calls `requested` if kInterval has passed since the last call. The thread must hold no lock:
  // `requested` may be a signal handler that calls this library.
  static void Check(int64_t now_ns);
  // As Check, without waiting for the interval.
  static void CheckNow();
  // For a scheduler that runs fibers on one thread, where each fiber has scopes of its own: makes
  // `scope` (null: none) the thread's innermost one, and returns the one before.
  static Interruption* Exchange(Interruption* scope);

 private:
  const Requested requested_;
  void* const context_;
  int64_t next_check_ns_ = 0;
  bool interrupted_ = false;
  Interruption* const outer_;
};

}  // namespace cairn
