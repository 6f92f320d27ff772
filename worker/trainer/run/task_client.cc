#include "worker/trainer/run/task_client.h"

#include "common/config/client_config.h"
#include "worker/trainer/reports/run_meter.h"

namespace cairn {

int32_t WorkerOnServers(const TrainerOptions& options) {
  return options.group == nullptr ? options.worker : 0;
}

int32_t WorkersOnServers(const TrainerOptions& options) {
  return options.group == nullptr ? options.workers : 1;
}

ClientOptions ClientOptionsFor(const TrainerOptions& options, int32_t worker) {
  ClientOptions client;
  client.job = options.job.name;
  client.worker = worker;
  client.task = options.task;
  client.ps_wait = absl::Seconds(options.job.strategy.ps_wait_seconds);
  client.skip_not_finite = options.job.not_finite == "skip";
  client.consistency = ConsistencyOf(options.job.strategy);
  client.expected_workers = WorkersOnServers(options);
  if (worker >= 0 && options.meter != nullptr) {
    client.vitals = [meter = options.meter] { return meter->vitals(); };
  }
  return client;
}

absl::Duration CallTimeout(const TrainerOptions& options) {
  const ClientOptions client = ClientOptionsFor(options, 0);
  return client.ps_wait + 2 * client.rpc_timeout;
}

}  // namespace cairn
