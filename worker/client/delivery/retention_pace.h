// Spreads the wait for room among retained pushes over many pushes.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace cairn {

// Retained bytes are freed when a snapshot ends, many at once and seconds after they were added. A
// worker that pushes as fast as it can would fill the rest of the limit in a moment and then wait
// for the whole snapshot. Instead, once half of the limit is used, each push waits a little, so
// that the remaining room lasts until the next snapshot is expected to end, judging by earlier
// ones. Workers that push more slowly than that do not wait.
// Only decides: the caller waits.
// Thread safety: none.
class RetentionPace {
 public:
  // Longest wait of one push.
  static constexpr absl::Duration kLongest = absl::Milliseconds(200);

  explicit RetentionPace(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // How long a push of `bytes` must wait from `now` (monotonic clock) while `held_bytes` are
  // retained. `freed_bytes`: total of all bytes freed so far. Zero where the push does not fit at
  // all: the caller then waits for a snapshot.
  absl::Duration Wait(int64_t bytes, int64_t held_bytes, int64_t freed_bytes, absl::Duration now);

 private:
  // Expected time until the next snapshot ends, `elapsed` after half of the limit was reached or
  // after the last snapshot since.
  absl::Duration ExpectedRest(absl::Duration elapsed) const;

  const int64_t limit_bytes_;
  // start of the current interval; none: less than half is held
  std::optional<absl::Duration> since_;
  int64_t freed_bytes_ = 0;              // `freed_bytes` at that time
  absl::Duration last_;                  // when the previous push was due
  std::optional<absl::Duration> usual_;  // usual time between two ends of snapshots
};

}  // namespace cairn
