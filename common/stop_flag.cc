#include "common/deadline.h"
#include "common/monotonic_cond_var.h"

namespace cairn {

void StopFlag::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  changed_.SignalAll();
}

bool StopFlag::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

bool StopFlag::WaitFor(absl::Duration timeout) {
  const Deadline deadline = Deadline::In(timeout);
  absl::MutexLock lock(&mutex_);
  while (!stopped_ && !deadline.Expired()) changed_.WaitUntil(&mutex_, deadline);
  return stopped_;
}

}  // namespace cairn
