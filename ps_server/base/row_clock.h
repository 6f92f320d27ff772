// The time by which rows expire (ROW_RULES.md).
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/deadline.h"

namespace cairn {

// The wall clock, except that a jump forward counts only gradually: a clock that is wrong for a
// moment deletes no rows that are in use.
// Thread safety: every method may be called from several threads at once.
class RowClock {
 public:
  using Wall = std::function<absl::Time()>;
  using Monotonic = std::function<absl::Duration()>;
  explicit RowClock(Wall wall = absl::Now, Monotonic monotonic = MonotonicNow)
      : wall_(std::move(wall)), monotonic_(std::move(monotonic)) {}

  // The first call returns the wall clock's time. Later calls return a time that advances at most
  // twice as fast as the monotonic clock, until it is the wall clock's again. nullopt: the wall
  // clock shows a time before this release, so it is not set yet.
  std::optional<absl::Time> Now();

 private:
  const Wall wall_;
  const Monotonic monotonic_;
  absl::Mutex mutex_;
  std::optional<absl::Time> time_ ABSL_GUARDED_BY(mutex_);  // what Now returned last
  absl::Duration at_ ABSL_GUARDED_BY(mutex_);               // when, on the monotonic clock
  bool behind_ ABSL_GUARDED_BY(mutex_) = false;             // the wall clock has jumped ahead of it
};

}  // namespace cairn
