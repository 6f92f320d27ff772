// Processes a large stripe in slices, so that pushes to it do not wait long.
#pragma once

#include <cstddef>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ps_server/rows/stripe.h"
#include "storage/stripe_store.h"

namespace cairn {

// About how many bytes one slice puts into a batch.
inline constexpr size_t kSliceBytes = 256 << 10;

// Calls `slice`, which puts something into `batch`, until it returns false. Each call holds the
// stripe's lock, which is free between two calls. absl::Mutex does not hand over to waiters:
// without `pause` the next slice would take the lock again before the waiting pushes wake up.
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
