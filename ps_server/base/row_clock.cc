#include "ps_server/base/row_clock.h"

#include <algorithm>

#include "common/log.h"
#include "common/time_text.h"

namespace cairn {
namespace {

// 2026-01-01. A machine without a battery-backed clock starts in 1970.
constexpr absl::Time kEarliest = absl::FromUnixSeconds(1767225600);
// Smaller jumps are not worth a message.
constexpr absl::Duration kNotableJump = absl::Minutes(1);

}  // namespace

std::optional<absl::Time> RowClock::Now() {
  const absl::MutexLock lock(&mutex_);
  const absl::Time wall = wall_();
  const absl::Duration now = monotonic_();
  if (wall < kEarliest) {
    LOG_EVERY_T(WARNING, 3600) << "the clock shows " << absl::FormatTime(wall)
                               << ": rows do not expire until it is set";
    return std::nullopt;
  }
  const absl::Time time = time_ ? std::min(wall, *time_ + 2 * (now - at_)) : wall;
  const absl::Duration ahead = wall - time;
  if (ahead >= kNotableJump && !behind_) {
    LOG(WARNING) << "the clock has jumped forward by " << DurationText(ahead)
                 << ": until that time has passed again, rows age at most twice as fast as usual";
  }
  behind_ = ahead >= kNotableJump;
  time_ = time;
  at_ = now;
  return time;
}

}  // namespace cairn
