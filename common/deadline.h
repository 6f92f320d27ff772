// The moment by which a call must have returned. There is no infinite deadline: every wait ends.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {

// Time on the monotonic clock, since some moment that is the same all through the process.
absl::Duration MonotonicNow();

// A value type; copies are cheap. Measured on the monotonic clock, so a clock jump moves nothing.
class Deadline {
 public:
  // `timeout` from now; negative or zero: already expired.
  static Deadline In(absl::Duration timeout);

  // Time left; never negative.
  absl::Duration Remaining() const;
  bool Expired() const { return Remaining() <= absl::ZeroDuration(); }

  // The same moment for absl::CondVar and absl::Mutex waits, which take wall-clock times.
  absl::Time ToAbslTime() const { return absl::Now() + Remaining(); }

  // The earlier of both.
  static Deadline Earlier(Deadline a, Deadline b) { return a.at_ns_ < b.at_ns_ ? a : b; }

 private:
  explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}
  int64_t at_ns_;  // CLOCK_MONOTONIC
};

}  // namespace cairn
