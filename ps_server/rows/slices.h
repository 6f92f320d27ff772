// Work on a large stripe that does not keep those that push to it waiting.
#pragma once

#include <cstddef>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ps_server/rows/stripe.h"
#include "storage/stripe_store.h"

namespace cairn {

// Of what one slice puts into a batch, about.
inline constexpr size_t kSliceBytes = 256 << 10;

// Calls `slice`, which puts something into `batch`, until it returns false, each time with the
// stripe's lock held; the lock is free between two calls. absl::Mutex hands nothing over: without
// `pause` the next slice would win it again from pushes that wait for it and have yet to wake up.
template <typename Slice>
void InSlices(Stripe& stripe, StripeBatch& batch, absl::Duration pause, Slice slice) {
  for (bool more = true; more;) {
    {
      absl::MutexLock lock(&stripe.mutex());
      more = slice();
    }
    batch.Settle();
    if (more) absl::SleepFor(pause);
  }
}

}  // namespace cairn
