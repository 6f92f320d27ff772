// Beats in the roster while a synchronous worker trains.
#pragma once

#include <memory>
#include <thread>

#include "common/monotonic_cond_var.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/steps/roster.h"

namespace cairn {

// Under sync a training push is a contribution to a mean, which a beat must not be in, and a worker
// may wait long for others, some of whom wait to see it beat. So a thread beats, through an
// unsequenced client: a beat that is lost or counts twice does no harm.
// Thread safety: none.
class HeartbeatThread {
 public:
  // `client` knows the roster.
  HeartbeatThread(std::unique_ptr<PsClient> client, int32_t worker);
  // Ends when the beat that is under way does: within seconds.
  ~HeartbeatThread();

 private:
  void Run();

  const std::unique_ptr<PsClient> client_;
  RosterEntry entry_;
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace cairn
