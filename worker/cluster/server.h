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
  // Which task this is. Needed where the cluster has several jobs, and where the job has several
  // tasks.
  std::optional<std::string> job_name = {};
  std::optional<int32_t> task_index = {};
  std::string data_directory = {};      // made where it is not there; of this server alone
  std::string durability = "snapshot";  // off snapshot log log_sync
  // TLS and tokens; an address that other hosts can reach needs TLS, or allow_plaintext.
  SecurityOptions security = {};
  bool start = true;
};

// Unlike TensorFlow's, it can be stopped: what it has is then written, and a server that is made
// anew on the same directory goes on with it.
//
// Thread safety: every method may be called from several threads at once.
class Server {
 public:
  // Listens on the task's own address ("host:port"; port 0: a free one) when it returns, if
  // options.start. The servers of a cluster are the tasks of its "ps" job, or of its only job.
  // kInvalidArgument: the job or task cannot be told or is not there, no server's job, an address
  // without a port. kUnavailable: the port is in use. Else errors of the directory.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ClusterSpec& cluster,
                                                        const ServerOptions& options);
  // A cluster of this server alone, on a free port of 127.0.0.1.
  static absl::StatusOr<std::unique_ptr<Server>> CreateLocal(const std::string& data_directory,
                                                             bool start = true);
  virtual ~Server() = default;  // as Stop

  // "127.0.0.1:7001", with the port that was bound; before Start, the address as given.
  virtual std::string target() const = 0;
  // Again: does nothing. kFailedPrecondition: it was stopped.
  virtual absl::Status Start() = 0;
  // Ends every connection and writes what it has. Again: does nothing.
  virtual absl::Status Stop() = 0;
  // Waits until it is stopped; returns at once if it was not started. kDeadlineExceeded.
  virtual absl::Status Join(Deadline deadline) const = 0;
};

}  // namespace cairn
