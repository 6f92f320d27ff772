// Decides whether calls of a client may start or continue.
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
  static constexpr absl::string_view kNothingSent =
      "the deadline had passed before the call; nothing was sent";
  // In the middle of a call, before it sends to the servers that rows have moved to.
  static constexpr absl::string_view kRowsMove =
      "the deadline passed while rows moved; parts of the call may have arrived";

  // `identity` must outlive this object.
  explicit ClientGate(const ClientIdentity& identity) : identity_(identity) {}

  // kFailedPrecondition: the client has left its job, or a newer start of the worker has replaced
  // it.
  // kDeadlineExceeded: `deadline` has passed. `what` names the call in the message, and `late` says
  // what it has sent.
  absl::Status Check(absl::string_view what, Deadline deadline,
                     absl::string_view late = kNothingSent) const;
  // Call when the client has left its job.
  void Close() { left_.store(true, std::memory_order_relaxed); }

  // Records why the client cannot adopt a newer placement map; OK: it can. Check adds the cause to
  // its deadline error.
  void SetMapFailure(const absl::Status& failure);
  absl::Status map_failure() const;

 private:
  const ClientIdentity& identity_;
  std::atomic<bool> left_{false};
  mutable absl::Mutex mutex_;
  absl::Status map_failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
