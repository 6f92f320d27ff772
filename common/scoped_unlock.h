// The reverse of absl::MutexLock.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// Unlocks a mutex that the caller holds and locks it again at the end of the scope, also on an
// exception, so that the enclosing MutexLock always finds the mutex locked. State that describes
// the unlocked section (`running_`) needs a separate cleanup, created before this object.
class ABSL_SCOPED_LOCKABLE ScopedUnlock {
 public:
  explicit ScopedUnlock(absl::Mutex* mutex) ABSL_UNLOCK_FUNCTION(mutex) : mutex_(*mutex) {
    mutex_.Unlock();
  }
  ~ScopedUnlock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.Lock(); }
  ScopedUnlock(const ScopedUnlock&) = delete;
  ScopedUnlock& operator=(const ScopedUnlock&) = delete;

 private:
  absl::Mutex& mutex_;
};

}  // namespace cairn
