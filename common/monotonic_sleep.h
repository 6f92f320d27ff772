// Sleeps by the clock that deadlines use.
#pragma once

#include "absl/time/time.h"
#include "common/monotonic_cond_var.h"

namespace cairn {

// Blocks this thread for `duration`. Only an interruption of the thread (common/interruption.h)
// ends the sleep early. Thread safe.
inline void MonotonicSleep(absl::Duration duration) { StopFlag().WaitFor(duration); }

}  // namespace cairn
