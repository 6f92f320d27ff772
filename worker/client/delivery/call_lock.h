// A lock for long calls.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"

namespace cairn {

// One caller at a time holds it. Waiters time out and report who holds it, and since when. Thread
// safety: every method may be called from several threads at once.
class CallLock {
 public:
  // Waits until nobody holds the lock. Pair with Release, also after an exception.
  //   call    begins the error
  //   holder  what waiters report: "another push, which waits for its servers"
  // kDeadlineExceeded: names the holder.
  absl::Status Acquire(absl::string_view call, std::string holder, Deadline deadline);
  // For the caller that holds the lock: changes what waiters report, since now.
  void SetHolder(std::string holder);
  void Release();

 private:
  absl::Mutex mutex_;
  MonotonicCondVar freed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  std::string holder_ ABSL_GUARDED_BY(mutex_);
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
