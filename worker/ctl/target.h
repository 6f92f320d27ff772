// Which servers and which job a command is about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/cluster_config.h"
#include "common/config/job_config.h"

namespace cairn {

struct TargetOptions {
  std::string cluster_file;  // --cluster
  std::string servers;       // --servers: "host:port,host:port", in the order of ps tasks
  std::string job;           // --job: a job file, or a job's name
  double timeout_seconds = 3;
};

// Thread safety: a value.
struct Target {
  std::vector<std::string> servers;  // of ps:0, ps:1, …
  ClusterConfig cluster;             // without tasks where only servers were named
  std::string job;
  std::optional<JobConfig> job_file;  // where --job names one; its data files are not looked at
  absl::Duration timeout;

  // "ps:1 (127.0.0.1:7002)".
  std::string ServerName(size_t index) const;
  // "chief:0", "worker:1"; "worker 1" where the cluster is not known.
  std::string WorkerName(int32_t ordinal) const;
};

// Servers are those of --servers, else of --cluster, else of TF_CONFIG, else of the job file's
// cluster. Errors are those of flags and files (AsBadInput).
absl::StatusOr<Target> ResolveTarget(const TargetOptions& options);
// The same of commands that are about no job: `options.job` is empty, and so is Target's.
absl::StatusOr<Target> ResolveServers(const TargetOptions& options);
// `job` as above: its name, and the file where it is one.
absl::Status ResolveJob(const std::string& job, Target* target);

}  // namespace cairn
