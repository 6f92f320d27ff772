// A parameter server in this process, as a task of a cluster: tf.distribute.Server.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/security_options.h"
#include "common/deadline.h"
#include "worker/cluster/cluster_spec.h"

namespace cairn {

struct ServerOptions {
  // The task of this server. Needed if the cluster has several jobs, or the job several tasks.
  std::optional<std::string> job_name = {};
  std::optional<int32_t> task_index = {};
  std::string data_directory = {};      // created if missing; of this server only
  std::string durability = "snapshot";  // off snapshot log log_sync
  // TLS and tokens; an address that other hosts can reach requires TLS, or allow_plaintext.
  SecurityOptions security = {};
  bool start = true;
  // 0: 4 GiB, or three quarters of the memory of the machine or container if that is less.
  int64_t memory_budget_bytes = 0;
  // Keeps rows that their tables' expire_after_seconds and max_rows would delete: for servers that
  // only read a checkpoint.
  bool keep_all_rows = false;
};

// Unlike TensorFlow's server, this one can be stopped. Stopping writes its state, and a new server
// on the same directory continues from it.
//
// Thread safety: every method may be called from several threads at once.
class Server {
 public:
  // Listens on the task's own address ("host:port"; port 0: any free port) when it returns, if
  // options.start. The servers of a cluster are the tasks of its "ps" job, or of its only job.
  // kInvalidArgument: the job or task is ambiguous or missing, the job has no servers, or the
  // address has no port. kUnavailable: the port is in use. Otherwise errors of the directory.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ClusterSpec& cluster,
                                                        const ServerOptions& options);
  // A cluster of only this server, on a free port of 127.0.0.1.
  static absl::StatusOr<std::unique_ptr<Server>> CreateLocal(const std::string& data_directory,
                                                             bool start = true);
  virtual ~Server() = default;  // as Stop

  // "127.0.0.1:7001", with the bound port; before Start, the address as given.
  virtual std::string target() const = 0;
  // A second call does nothing. kFailedPrecondition: the server was stopped.
  virtual absl::Status Start() = 0;
  // Closes every connection and writes the server's state. A second call does nothing.
  virtual absl::Status Stop() = 0;
  // Waits until the server is stopped; returns at once if it was not started. kDeadlineExceeded.
  virtual absl::Status Join(Deadline deadline) const = 0;
};

}  // namespace cairn
