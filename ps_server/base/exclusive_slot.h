// A lock for long calls. Waiters time out, with an error that says what holds the lock and since
// when.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/monotonic_cond_var.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class ExclusiveSlot {
 public:
  // Releases the lock in its destructor.
  class Held {
   public:
    explicit Held(ExclusiveSlot* slot) : slot_(slot) {}
    Held(Held&& other) noexcept : slot_(other.slot_) { other.slot_ = nullptr; }
    Held& operator=(Held&&) = delete;
    ~Held() {
      if (slot_ != nullptr) slot_->End();
    }

   private:
    ExclusiveSlot* slot_;
  };

  // Waits until the lock is free. kUnavailable after `patience`: names both calls, and how long the
  // other has run.
  absl::StatusOr<Held> Take(absl::string_view what, absl::Duration patience);

 private:
  void End();

  absl::Mutex mutex_;
  MonotonicCondVar ended_;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  absl::Duration since_ ABSL_GUARDED_BY(mutex_);  // on the monotonic clock
};

}  // namespace cairn
