// Whether calls of a client may begin, or go on.
#pragma once

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "worker/client/delivery/server_session.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class ClientGate {
 public:
  // `identity` outlives this.
  explicit ClientGate(const ClientIdentity& identity) : identity_(identity) {}

  // kFailedPrecondition: the client has left its job, or must stop for a newer start has its place.
  // kDeadlineExceeded: `deadline` has passed. `what`, a call, begins the message.
  absl::Status Check(absl::string_view what, Deadline deadline) const;
  // The client has left its job.
  void Close() { left_.store(true, std::memory_order_relaxed); }

  // Why calls go by an old map of where rows are; OK: they do not. Part of the error of a deadline.
  void SetMapFailure(const absl::Status& failure);
  absl::Status map_failure() const;

 private:
  const ClientIdentity& identity_;
  std::atomic<bool> left_{false};
  mutable absl::Mutex mutex_;
  absl::Status map_failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
