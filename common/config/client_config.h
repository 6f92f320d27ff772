// How a program that links the client library describes its connection: a short YAML or JSON text
// with the keys of the cluster and job files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/job_config.h"
#include "common/config/local_transport.h"
#include "common/config/security_options.h"
#include "common/consistency.h"

namespace cairn {

// Thread safety: a value.
struct ClientConfig {
  std::vector<std::string> servers;  // "host:port" of ps:0, ps:1, …
  std::string job;
  int32_t worker = -1;      // ordinal among the training tasks; -1: not a training worker
  int32_t workers = 0;      // training tasks that the job starts with; 0: unknown
  std::string task;         // "worker:0", for messages
  StrategyConfig strategy;  // consistency, ps_wait_seconds, partitioner, …
  bool skip_not_finite = false;
  double rpc_timeout_seconds = 30;
  int64_t retained_bytes = int64_t{1} << 30;
  LocalTransport local_transport = LocalTransport::kSameUser;
  SecurityOptions security;
};

// Reads the keys
//   servers: [host:port, …] | cluster_file: PATH | cluster: {…} (and task: {…}); without any of
//     them TF_CONFIG names the cluster
//   job: NAME                  required
//   worker: N | auto | none    N: an ordinal among the training tasks: the chief, if the cluster
//   has
//     one, then the workers; auto: that of the cluster's task; default none
//   workers: N                 default: the cluster's training tasks
//   strategy: {consistency, staleness_bound_steps, replicas_to_aggregate, sync_mean,
//     on_worker_loss, ps_wait_seconds, partitioner}; a consistency other than async needs worker,
//     and sync a number of workers or replicas_to_aggregate
//   not_finite: reject | skip; rpc_timeout_seconds; retained_bytes; local_transport
//   security: {tls_certificate, tls_key, tls_ca, token_file, allow_plaintext}
// `source` names the text in messages. kInvalidArgument: source:line, the key, what is allowed.
absl::StatusOr<ClientConfig> ParseClientConfig(absl::string_view text, absl::string_view source);

// The consistency that `strategy` names; pull_ahead_steps are subtracted from the bound.
Consistency ConsistencyOf(const StrategyConfig& strategy);

}  // namespace cairn
