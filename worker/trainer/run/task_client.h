// How a task of the trainer calls the servers.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/run/trainer.h"

namespace cairn {

// A worker with its own server is the only worker there, and therefore number 0.
int32_t WorkerOnServers(const TrainerOptions& options);
int32_t WorkersOnServers(const TrainerOptions& options);

// `worker`: -1 for a client that is no worker.
ClientOptions ClientOptionsFor(const TrainerOptions& options, int32_t worker);

// The deadline of one call: the client waits ps_wait for a lost server, then for the call itself.
absl::Duration CallTimeout(const TrainerOptions& options);

}  // namespace cairn
