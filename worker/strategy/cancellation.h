// Cancellation of running functions: tokens that a function polls, and the source that cancels
// them.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "common/deadline.h"

namespace cairn {

// A C++ function cannot be interrupted. A long-running function checks its token from time to time
// and returns once the token is cancelled. Copies share one cancellation.
// Thread safety: every method may be called from several threads at once.
class CancellationToken {
 public:
  // A token that is never cancelled.
  CancellationToken() = default;

  bool is_cancelled() const { return !status().ok(); }
  // OK until the token is cancelled; then kCancelled, with the reason.
  absl::Status status() const;
  // Waits until the token is cancelled or `deadline` expires. Returns is_cancelled().
  bool WaitUntilCancelled(Deadline deadline) const;

 private:
  friend class CancellationSource;
  struct State;

  std::shared_ptr<State> state_;  // null: never cancelled
};

// The token of the scheduled function (cluster_coordinator.h) that calls this, also in the threads
// of its replicas. Elsewhere, a token that is never cancelled.
CancellationToken CurrentCancellation();

// The side that cancels.
// Thread safety: every method may be called from several threads at once.
class CancellationSource {
 public:
  CancellationSource();

  const CancellationToken& token() const { return token_; }
  // `reason` must be kCancelled. Only the first call has an effect.
  void Cancel(absl::Status reason);

 private:
  CancellationToken token_;
};

}  // namespace cairn
