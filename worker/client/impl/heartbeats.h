// Sends every server heartbeats, several in each lease, with the state of the worker's training.
#pragma once

#include <atomic>
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
  // The client's parts that heartbeats need. All outlive this.
  struct Dependencies {
    const ClientOptions& options;
    ServerTable& sessions;
    FanOut& fan_out;
    ServerCalls& calls;
    Membership& membership;
    Membership::Flags& flags;
    const Retention& retention;
    const StalenessCounter& staleness;
    absl::Duration longest_pause;  // longest time between two heartbeats
  };
  explicit Heartbeats(const Dependencies& deps) : deps_(deps) {}
  ~Heartbeats() { Stop(); }

  // Starts one thread for each server, and for servers that join later, and one that keeps the list
  // of servers current. A server that is down or cannot be greeted delays no other server's
  // heartbeats. Call once. kResourceExhausted: the system refuses a thread; the worker would lose
  // its lease.
  absl::Status Start(absl::Duration lease);
  // Ends the threads after their current heartbeats.
  void Stop();
  // Waits until no heartbeat is under way, and holds the next ones back until Resume. For the time
  // in which servers drop the job: a heartbeat then would come from an unknown worker. One caller
  // at a time. kDeadlineExceeded: a heartbeat was under way until the deadline; none are held back.
  absl::Status HoldBack(Deadline deadline);
  void Resume();

 private:
  // Starts the list's thread, and the threads of servers that have joined. Sets how many servers
  // the client knows. False: the system refuses a thread, and a later call tries again.
  bool StartThreads(size_t* known);
  // Waits between two heartbeats. True: the heartbeats have been stopped.
  bool Pause(const ServerSession& session, absl::Duration pause);
  void Loop(ServerSession& session);
  // Refreshes the list of servers after a heartbeat's answer reports a newer one.
  void RefreshLoop();
  // Waits while heartbeats are held back. False: they have been stopped.
  bool BeginBeat();
  void EndBeat();
  absl::Status Beat(ServerSession& session, absl::Duration timeout);
  wire::WorkerVitals Vitals() const;

  const Dependencies deps_;

  absl::Duration interval_;  // longest pause
  StopFlag stop_;
  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool held_back_ ABSL_GUARDED_BY(mutex_) = false;
  int beats_ ABSL_GUARDED_BY(mutex_) = 0;            // heartbeats and refreshes under way
  bool newer_list_ ABSL_GUARDED_BY(mutex_) = false;  // to be fetched
  absl::Mutex threads_mutex_;
  bool stopped_ ABSL_GUARDED_BY(threads_mutex_) = false;
  size_t started_ ABSL_GUARDED_BY(threads_mutex_) = 0;  // servers below this index have a thread
  std::vector<ClientThread> threads_ ABSL_GUARDED_BY(threads_mutex_);
  mutable std::atomic<bool> vitals_failed_ = false;  // ClientOptions::vitals has thrown
};

}  // namespace cairn
