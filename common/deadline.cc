#include "common/deadline.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "common/interruption.h"

namespace cairn {
namespace {

int64_t MonotonicNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::Duration MonotonicNow() { return absl::Nanoseconds(MonotonicNanos()); }

Deadline Deadline::In(absl::Duration timeout) {
  const int64_t now = MonotonicNanos();
  const int64_t room = std::numeric_limits<int64_t>::max() - now;
  return Deadline(now + std::clamp<int64_t>(absl::ToInt64Nanoseconds(timeout), 0, room));
}

absl::Duration Deadline::Remaining() const {
  const int64_t now = MonotonicNanos();
  if (Interruption::Interrupted(now)) return absl::ZeroDuration();
  return absl::Nanoseconds(std::max<int64_t>(0, at_ns_ - now));
}

absl::Duration Deadline::RemainingInWait() const {
  Interruption::Check(MonotonicNanos());
  return Remaining();
}

}  // namespace cairn
