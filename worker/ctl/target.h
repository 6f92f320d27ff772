// The servers and the job that a command addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/cluster_config.h"
#include "common/config/job_config.h"
#include "common/config/security_options.h"
#include "common/deadline.h"
#include "thrift/client/wire_client.h"
#include "thrift/member_list.h"
#include "worker/client/ps_client.h"

namespace cairn {

struct TargetOptions {
  std::string cluster_file;  // --cluster
  std::string servers;       // --servers: "host:port,host:port", in the order of ps tasks
  std::string job;           // --job: a job file, or a job's name
  double timeout_seconds = 3;
  SecurityOptions security;  // --tls_certificate, …
};

// Thread safety: a value.
struct Target {
  MemberList members;     // the named servers; after LearnMembers, all servers of the cluster
  ClusterConfig cluster;  // without tasks if only servers were named
  std::string job;
  std::optional<JobConfig> job_file;  // if --job names a file; its data files are not checked
  absl::Duration timeout;
  SecurityOptions security;  // its files exist and match each other

  // Asks ps:0 which servers have joined and left since the cluster file was written. On an error
  // `members` does not change.
  absl::Status LearnMembers();
  // "ps:1 (127.0.0.1:7002)".
  std::string ServerName(size_t index) const;
  // "chief:0", "worker:1"; "worker 1" if the cluster is not known.
  std::string WorkerName(int32_t ordinal) const;
  // Errors as ClientSecurity::Load and WireClient::Connect.
  absl::StatusOr<std::unique_ptr<WireClient>> Connect(size_t server, Deadline deadline) const;
  // A client of the job that is no worker. `local_transport` is a flag's value; "off" suits a few
  // small calls. Errors as LocalTransportFromName (AsBadInput) and PsClient::Connect.
  absl::StatusOr<std::unique_ptr<PsClient>> ConnectClient(const std::string& local_transport) const;
};

// The index of the task "ps:N", N < `count`; "N" means the same. kInvalidArgument: another text.
absl::StatusOr<int32_t> ServerIndex(const std::string& task, size_t count);

// A job name that shows in servers' logs which process asks: "cairnctl-drain-HOST-PID".
std::string JobOfCommand(const std::string& command);

// Takes the servers from --servers, else from --cluster, else from TF_CONFIG, else from the job
// file's cluster. Errors are those of flags and files (AsBadInput).
absl::StatusOr<Target> ResolveTarget(const TargetOptions& options);
// Like ResolveTarget, for commands that address no job: neither `options` nor the target names a
// job.
absl::StatusOr<Target> ResolveServers(const TargetOptions& options);
// Sets the job's name, and the job file if `job` is a file.
absl::Status ResolveJob(const std::string& job, Target* target);

}  // namespace cairn
