// Which servers and which job a command is about.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/cluster_config.h"
#include "common/config/job_config.h"
#include "common/config/security_options.h"
#include "common/deadline.h"
#include "thrift/client/wire_client.h"
#include "worker/client/moves/member_list.h"

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
  MemberList members;     // those named; after LearnMembers all there are
  ClusterConfig cluster;  // without tasks where only servers were named
  std::string job;
  std::optional<JobConfig> job_file;  // where --job names one; its data files are not looked at
  absl::Duration timeout;
  SecurityOptions security;  // its files are there and fit each other

  // Asks ps:0 which servers have come and gone since the cluster file was written. On an error
  // they are as they were.
  absl::Status LearnMembers();
  // "ps:1 (127.0.0.1:7002)".
  std::string ServerName(size_t index) const;
  // "chief:0", "worker:1"; "worker 1" where the cluster is not known.
  std::string WorkerName(int32_t ordinal) const;
  // Errors as ClientSecurity::Load and WireClient::Connect.
  absl::StatusOr<std::unique_ptr<WireClient>> Connect(size_t server, Deadline deadline) const;
};

// A job name that tells servers' logs which process asks: "cairnctl-drain-HOST-PID".
std::string JobOfCommand(const std::string& command);

// Servers are those of --servers, else of --cluster, else of TF_CONFIG, else of the job file's
// cluster. Errors are those of flags and files (AsBadInput).
absl::StatusOr<Target> ResolveTarget(const TargetOptions& options);
// The same of commands that are about no job: `options.job` is empty, and so is Target's.
absl::StatusOr<Target> ResolveServers(const TargetOptions& options);
// `job` as above: its name, and the file where it is one.
absl::Status ResolveJob(const std::string& job, Target* target);

}  // namespace cairn
