#include "worker/client/delivery/call_lock.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/errors.h"
#include "common/time_text.h"

namespace cairn {

absl::Status CallLock::Acquire(absl::string_view call, std::string holder, Deadline deadline) {
  absl::MutexLock lock(&mutex_);
  while (held_ && !deadline.Expired()) freed_.WaitUntil(&mutex_, deadline);
  if (held_) {
    return DeadlineExceeded(call, ": waited until the deadline for ", holder_, ", since ",
                            TimeOfDayText(since_));
  }
  held_ = true;
  holder_ = std::move(holder);
  since_ = absl::Now();
  return absl::OkStatus();
}

void CallLock::SetHolder(std::string holder) {
  absl::MutexLock lock(&mutex_);
  holder_ = std::move(holder);
  since_ = absl::Now();
}

void CallLock::Release() {
  absl::MutexLock lock(&mutex_);
  held_ = false;
  freed_.SignalAll();
}

}  // namespace cairn
