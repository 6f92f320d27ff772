// The cluster file: lists the tasks of the cluster and says which one this process is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// Thread safety: a value.
struct ClusterConfig {
  // Job ("ps", "worker", "chief", "evaluator") -> "host:port" by task index. A JSON object with
  // number keys (TF_CONFIG's sparse form) must be dense.
  std::map<std::string, std::vector<std::string>> tasks;
  std::string task_type;    // empty: not given
  int32_t task_index = -1;  // -1: not given
  // Unknown keys and similar findings, one line each, for the log. Not errors.
  std::vector<std::string> warnings;

  const std::vector<std::string>& addresses(absl::string_view job) const;  // empty if none
  // The number of chief and worker tasks.
  int32_t training_task_count() const;
  // Ordinal of a training task: chief 0, then workers. -1 for any other task.
  int32_t training_ordinal(absl::string_view type, int32_t index) const;
  // The task of an ordinal: "chief:0", "worker:1".
  std::string training_task(int32_t ordinal) const;
};

// Reads the text of a cluster file, YAML or JSON (examples/reference/cluster.yaml). `source` names
// it in messages ("cluster.yaml"). kInvalidArgument: source:line, what was found, what is allowed.
absl::StatusOr<ClusterConfig> ParseCluster(absl::string_view text, absl::string_view source);
// kNotFound / kInvalidArgument, naming the file.
absl::StatusOr<ClusterConfig> ReadClusterFile(const std::string& path);
// Reads the environment variable TF_CONFIG; nullopt if it is unset or empty. Errors as
// ParseCluster.
absl::StatusOr<std::optional<ClusterConfig>> ReadTfConfig();

// Splits "host:port", also "[::1]:7001". kInvalidArgument says what is wrong.
struct HostPort {
  std::string host;
  int32_t port = 0;
};
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);
// The reverse of ParseHostPort: "host:port", "[::1]:7001".
std::string HostPortText(absl::string_view host, int32_t port);
// Whether only this host can reach a listener on `host`, a name or a numeric address.
bool IsLoopback(absl::string_view host);

}  // namespace cairn
