// Spreads a wait for room among retained pushes over the pushes before it.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace cairn {

// Retained bytes go when an epoch ends, many at once and seconds after they came. Who pushes as
// fast as it can would fill what is left of the limit in a moment and then wait for all of the
// epoch. Beyond half of the limit each push is told to wait a little instead, so that the room that
// is left lasts until the next epoch's end, as far as that can be foretold from the ends before it.
// Who pushes slower than that does not wait. Decides only: the caller waits.
// Thread safety: none.
class RetentionPace {
 public:
  // A push is told to wait this long at most.
  static constexpr absl::Duration kLongest = absl::Milliseconds(200);

  explicit RetentionPace(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // How long a push of `bytes` is to wait from `now`, on the monotonic clock, while `held_bytes`
  // are retained. `gone_bytes`: of what was retained in all the time, what is not any more. Zero
  // where there is no room for it at all: then it waits for an epoch.
  absl::Duration Wait(int64_t bytes, int64_t held_bytes, int64_t gone_bytes, absl::Duration now);

 private:
  // From the moment when half of the limit was held, or from an epoch's end since, to the next end.
  absl::Duration Foretold(absl::Duration elapsed) const;

  const int64_t limit_bytes_;
  std::optional<absl::Duration> since_;  // that moment; none: less is held
  int64_t gone_bytes_ = 0;               // by then
  absl::Duration last_;                  // when the push before this one was to go
  std::optional<absl::Duration> usual_;  // between two ends
};

}  // namespace cairn
