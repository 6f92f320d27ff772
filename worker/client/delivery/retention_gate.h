// Keeps the retained pushes of a client within their limit by delaying new pushes.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "worker/client/delivery/client_thread.h"
#include "worker/client/delivery/push_order.h"
#include "worker/client/delivery/retention_pace.h"
#include "worker/client/delivery/server_calls.h"
#include "worker/client/delivery/server_table.h"

namespace cairn {

// Thread safety: WaitForCapacity belongs to the thread that holds the PushOrder; the other methods
// may be called from several threads at once.
class RetentionGate {
 public:
  // All arguments outlive the gate.
  RetentionGate(const ClientIdentity& identity, const Retention& retention,
                const ServerTable& sessions, PushOrder& order, ServerCalls& calls)
      : identity_(identity),
        retention_(retention),
        sessions_(sessions),
        order_(order),
        calls_(calls) {}
  ~RetentionGate() { Stop(Deadline::In(absl::ZeroDuration())); }

  // Waits until the updates in `exchanges` fit in the limit.
  absl::Status WaitForCapacity(absl::Span<Exchange* const> exchanges, Deadline deadline);
  // Call after each push. When more than half of the limit is used, asks every server with retained
  // pushes for an early snapshot, in a thread of the gate. Returns at once.
  void RequestSnapshots();
  // Ends the thread. Its current calls may go on until `deadline`; then it gives them up.
  void Stop(Deadline deadline);

 private:
  absl::Status WaitForSnapshots(int64_t needed, Deadline deadline);
  void Loop();
  void Flush();

  const ClientIdentity& identity_;
  const Retention& retention_;
  const ServerTable& sessions_;
  PushOrder& order_;
  ServerCalls& calls_;
  RetentionPace pace_{retention_.limit_bytes()};

  absl::Mutex mutex_;
  MonotonicCondVar changed_;  // asked_, flushing_ or stopping_
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool flushing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> gives_up_{false};  // the thread's calls end
  ClientThread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
