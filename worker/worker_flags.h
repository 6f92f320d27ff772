// The flags of cairn-worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/local_transport.h"
#include "common/config/security_options.h"
#include "common/http/http_flags.h"

namespace cairn {

// Thread safety: a value.
struct WorkerFlags {
  std::string text;  // the text of --help, --version or --completion, to print instead of running

  std::string job;
  std::string cluster;
  std::string cluster_resolver;
  std::string cluster_jobs;
  int32_t cluster_port = 0;
  bool print_cluster = false;
  std::string task_type;
  std::optional<int32_t> task_index;
  std::string data_root;
  std::string metrics_file;
  std::string export_file;
  std::optional<int64_t> max_steps;  // 0: no limit
  std::string mode = "train";
  std::string predictions;
  bool fresh = false;
  bool trains_more = false;  // --continue
  std::string obeyed_file;
  std::vector<std::string> overrides;
  std::string local_transport = "auto";
  SecurityOptions security;
  HttpFlagValues http;

  bool trains() const { return mode == "train"; }

  // The given flags that a user repeats only with --mode train, as "--fresh".
  std::vector<std::string> TrainingFlags() const;

  // kInvalidArgument: --mode and the flags that belong to one mode, or a number, do not fit.
  absl::Status Validate() const;

  // Parses --local_transport. kInvalidArgument: a flag for calls to servers is given for a task
  // that makes none (`calls_servers` is false).
  absl::StatusOr<LocalTransport> CheckCalls(bool calls_servers) const;
};

// `arguments` exclude the program's name. kInvalidArgument: a bad flag.
absl::StatusOr<WorkerFlags> ReadWorkerFlags(absl::Span<const char* const> arguments);

}  // namespace cairn
