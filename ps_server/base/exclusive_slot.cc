#include "ps_server/base/exclusive_slot.h"

#include "common/deadline.h"
#include "common/errors.h"
#include "common/time_text.h"

namespace cairn {

absl::StatusOr<ExclusiveSlot::Held> ExclusiveSlot::Take(absl::string_view what,
                                                        absl::Duration patience) {
  const Deadline deadline = Deadline::In(patience);
  absl::MutexLock lock(&mutex_);
  while (taken_) {
    if (deadline.Expired()) {
      return Unavailable(what, " waits for ", what_, ", which has run for ",
                         DurationText(MonotonicNow() - since_), ": retry when it has ended");
    }
    ended_.WaitUntil(&mutex_, deadline);
  }
  what_ = std::string(what);  // may throw, so it comes before the lock is taken
  taken_ = true;
  since_ = MonotonicNow();
  return Held(this);
}

void ExclusiveSlot::End() {
  absl::MutexLock lock(&mutex_);
  taken_ = false;
  ended_.SignalAll();
}

}  // namespace cairn
