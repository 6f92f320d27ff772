// The time by which a call must have returned. There is no infinite deadline: every wait ends.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {

// Time on the monotonic clock, from an origin that is fixed for the whole process.
absl::Duration MonotonicNow();

// A value type; copies are cheap. Uses the monotonic clock, so a clock jump does not move a
// deadline.
class Deadline {
 public:
  // `timeout` from now; a zero or negative timeout has already expired.
  static Deadline In(absl::Duration timeout);

  // Time left; never negative.
  absl::Duration Remaining() const;
  // The same for a thread that waits and holds no lock: asks first whether the thread is to be
  // interrupted (common/interruption.h), which may run code of the program.
  absl::Duration RemainingInWait() const;
  bool Expired() const { return Remaining() <= absl::ZeroDuration(); }

  // The same point in time for absl::CondVar and absl::Mutex, which take wall-clock times.
  absl::Time ToAbslTime() const { return absl::Now() + Remaining(); }

  // The earlier of the two.
  static Deadline Earlier(Deadline a, Deadline b) { return a.at_ns_ < b.at_ns_ ? a : b; }

 private:
  explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}
  int64_t at_ns_;  // CLOCK_MONOTONIC
};

}  // namespace cairn
