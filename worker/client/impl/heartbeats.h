// Tells every server, several times a lease, that the worker lives, and how its training goes.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/monotonic_cond_var.h"
#include "thrift/cairn_types.h"
#include "worker/client/delivery/client_thread.h"
#include "worker/client/delivery/staleness.h"
#include "worker/client/moves/membership.h"
#include "worker/client/ps_client.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class Heartbeats {
 public:
  // What it uses; all outlive this.
  struct Uses {
    const ClientOptions& options;
    ServerTable& sessions;
    FanOut& fan_out;
    ServerCalls& calls;
    Membership& membership;
    Membership::Flags& flags;
    const Retention& retention;
    const StalenessCounter& staleness;
    absl::Duration longest_pause;  // between two heartbeats
  };
  explicit Heartbeats(const Uses& uses) : uses_(uses) {}
  ~Heartbeats() { Stop(); }

  // Once: a thread a server, those that join later included; one that is gone holds up no other's.
  void Start(absl::Duration lease);
  // Waits for those under way.
  void Stop();
  // Held exclusively while servers forget the worker: a heartbeat would be one of an unknown one.
  absl::Mutex& mutex() { return mutex_; }

 private:
  // For servers that have come since. Returns how many servers there are.
  size_t StartThreads();
  // Between two heartbeats; true: there are no more.
  bool Pause(const ServerSession& session, absl::Duration pause);
  void Loop(ServerSession& session);
  absl::Status Beat(ServerSession& session, absl::Duration timeout);
  wire::WorkerVitals Vitals() const;

  const Uses uses_;

  absl::Duration interval_;  // at most
  absl::Mutex mutex_;        // shared by heartbeats
  StopFlag stop_;
  absl::Mutex threads_mutex_;
  bool stopped_ ABSL_GUARDED_BY(threads_mutex_) = false;
  size_t started_ ABSL_GUARDED_BY(threads_mutex_) = 0;  // servers with a smaller index have one
  std::vector<ClientThread> threads_ ABSL_GUARDED_BY(threads_mutex_);
};

}  // namespace cairn
