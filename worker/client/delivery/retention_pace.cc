#include "worker/client/delivery/retention_pace.h"

#include <algorithm>

namespace cairn {
namespace {

// A snapshot has ended when 1/kEpochShare of the limit was freed: on one server of several, or on
// some.
constexpr int64_t kEpochShare = 8;

}  // namespace

absl::Duration RetentionPace::ExpectedRest(absl::Duration elapsed) const {
  // A late snapshot may take longer still: the expected rest grows, so that the remaining room
  // shrinks but is not used up.
  return usual_.has_value() ? std::max(*usual_ - elapsed, elapsed / 4) : elapsed;
}

absl::Duration RetentionPace::Wait(int64_t bytes, int64_t held_bytes, int64_t freed_bytes,
                                   absl::Duration now) {
  if (since_.has_value() && freed_bytes - freed_bytes_ >= limit_bytes_ / kEpochShare) {
    const absl::Duration took = now - *since_;
    usual_ = usual_.has_value() ? std::max(took, (took + *usual_) / 2) : took;
    since_.reset();
  }
  const int64_t room = limit_bytes_ - held_bytes;
  absl::Duration wait;
  if (held_bytes <= limit_bytes_ / 2) {
    since_.reset();
  } else if (bytes < room) {
    if (!since_.has_value()) {
      since_ = now;
      freed_bytes_ = freed_bytes;
    }
    const double share = static_cast<double>(bytes) / static_cast<double>(room);
    const absl::Duration due = last_ + ExpectedRest(now - *since_) * share;
    wait = std::clamp(due - now, absl::ZeroDuration(), kLongest);
  }
  last_ = now + wait;
  return wait;
}

}  // namespace cairn
