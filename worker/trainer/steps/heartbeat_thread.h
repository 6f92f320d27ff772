// Sends heartbeats to the roster while a worker trains beside others.
#pragma once

#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "common/monotonic_cond_var.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/steps/roster.h"

namespace cairn {

// Training pushes cannot carry the heartbeats: under sync a push contributes to a mean, and a
// worker may compute long, or wait long for a server or for others, some of which wait for its
// heartbeat. So a thread sends them, through an unsequenced client: a heartbeat that is lost or
// applied twice is harmless. Thread safety: none.
class HeartbeatThread {
 public:
  // `client` knows the roster. kResourceExhausted: the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<HeartbeatThread>> Start(std::unique_ptr<PsClient> client,
                                                                int32_t worker);
  // Waits for the heartbeat in flight: seconds at most.
  ~HeartbeatThread();

 private:
  HeartbeatThread(std::unique_ptr<PsClient> client, int32_t worker);
  void Run();

  const std::unique_ptr<PsClient> client_;
  RosterEntry entry_;
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace cairn
