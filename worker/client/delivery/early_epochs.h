// Asks servers to write what they have before their interval is over, beside the pushes.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/monotonic_cond_var.h"
#include "worker/client/delivery/client_thread.h"
#include "worker/client/delivery/server_calls.h"
#include "worker/client/delivery/server_table.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class EarlyEpochs {
 public:
  // Both outlive this.
  EarlyEpochs(const ServerTable& sessions, ServerCalls& calls)
      : sessions_(sessions), calls_(calls) {}
  ~EarlyEpochs() { Stop(); }

  // Asks every server that has pushes which are kept for it, in a thread that the first Ask starts.
  // Returns at once. Nothing happens where they are being asked already.
  void Ask();
  // Waits for calls that are under way. Nothing is asked afterwards.
  void Stop();

 private:
  void Loop();
  void Flush();

  const ServerTable& sessions_;
  ServerCalls& calls_;
  absl::Mutex mutex_;
  MonotonicCondVar changed_;  // asked_ or stopping_
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ClientThread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
