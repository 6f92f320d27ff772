#include "worker/strategy/cancellation.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/monotonic_cond_var.h"

namespace cairn {

struct CancellationToken::State {
  absl::Mutex mutex;
  MonotonicCondVar cancelled;
  absl::Status reason ABSL_GUARDED_BY(mutex);
};

absl::Status CancellationToken::status() const {
  if (state_ == nullptr) return absl::OkStatus();
  absl::MutexLock lock(&state_->mutex);
  return state_->reason;
}

bool CancellationToken::WaitUntilCancelled(Deadline deadline) const {
  // A token that is never cancelled waits in the same way.
  const std::shared_ptr<State> state = state_ != nullptr ? state_ : std::make_shared<State>();
  absl::MutexLock lock(&state->mutex);
  while (state->reason.ok() && !deadline.Expired()) {
    state->cancelled.WaitUntil(&state->mutex, deadline);
  }
  return !state->reason.ok();
}

CancellationSource::CancellationSource() {
  token_.state_ = std::make_shared<CancellationToken::State>();
}

void CancellationSource::Cancel(absl::Status reason) {
  absl::MutexLock lock(&token_.state_->mutex);
  if (!token_.state_->reason.ok()) return;
  token_.state_->reason = std::move(reason);
  token_.state_->cancelled.SignalAll();
}

}  // namespace cairn
