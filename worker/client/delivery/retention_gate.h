// Keeps what a client retains of pushes that are not durable yet within its limit: pushes wait.
#pragma once

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

// Thread safety: MakeRoom belongs to the thread whose turn it is (PushOrder); the rest may be
// called from several threads at once.
class RetentionGate {
 public:
  // All outlive this.
  RetentionGate(const ClientIdentity& identity, const Retention& retention,
                const ServerTable& sessions, PushOrder& order, ServerCalls& calls)
      : identity_(identity),
        retention_(retention),
        sessions_(sessions),
        order_(order),
        calls_(calls) {}
  ~RetentionGate() { Stop(); }

  // Waits until the updates of `exchanges` fit in what may be retained.
  absl::Status MakeRoom(absl::Span<Exchange* const> exchanges, Deadline deadline);
  // After a push: where half of the limit is used, asks every server that has pushes which are kept
  // for it to write them early, in a thread of the gate. Returns at once.
  void AskForEpochs();
  // Asks for no more epochs, and waits for calls that are under way.
  void Stop();

 private:
  absl::Status WaitForEpochs(int64_t needed, Deadline deadline);
  void Loop();
  void Flush();

  const ClientIdentity& identity_;
  const Retention& retention_;
  const ServerTable& sessions_;
  PushOrder& order_;
  ServerCalls& calls_;
  RetentionPace pace_{retention_.limit_bytes()};

  absl::Mutex mutex_;
  MonotonicCondVar changed_;  // asked_ or stopping_
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ClientThread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
