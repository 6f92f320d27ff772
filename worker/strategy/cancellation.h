// How a running function learns that its result is no longer wanted.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "common/deadline.h"

namespace cairn {

// C++ functions cannot be interrupted: a function that takes long looks at its token now and then,
// and returns. Copies are of one cancellation.
// Thread safety: every method may be called from several threads at once.
class CancellationToken {
 public:
  // Is never cancelled.
  CancellationToken() = default;

  bool is_cancelled() const { return !status().ok(); }
  // OK; once cancelled kCancelled, with the reason.
  absl::Status status() const;
  // Waits until it is cancelled, or `deadline`. is_cancelled().
  bool WaitUntilCancelled(Deadline deadline) const;

 private:
  friend class CancellationSource;
  struct State;

  std::shared_ptr<State> state_;  // null: is never cancelled
};

// The token of the calling scheduled function (cluster_coordinator.h), also in the threads of the
// replicas that it runs. Elsewhere one that is never cancelled.
CancellationToken CurrentCancellation();

// The side that cancels.
// Thread safety: every method may be called from several threads at once.
class CancellationSource {
 public:
  CancellationSource();

  const CancellationToken& token() const { return token_; }
  // `reason` is kCancelled. A later one changes nothing.
  void Cancel(absl::Status reason);

 private:
  CancellationToken token_;
};

}  // namespace cairn
