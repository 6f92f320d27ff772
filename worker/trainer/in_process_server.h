// The composition root of a worker without a cluster: a parameter server in this process.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/config/job_config.h"
#include "worker/client/ps_client.h"

namespace cairn {

// An engine on storage.directory/NAME of the job. Thread safety: none.
class InProcessServer {
 public:
  virtual ~InProcessServer() = default;

  // Makes the folder if `create`, else kNotFound where there is none: nothing has been trained.
  // Errors as Engine::Open.
  static absl::StatusOr<std::unique_ptr<InProcessServer>> Open(const JobConfig& job, bool create);

  // The server outlives the client.
  virtual absl::StatusOr<std::unique_ptr<PsClient>> Connect(const ClientOptions& options,
                                                            Deadline deadline) = 0;
  // Flushes and closes. The clients are gone by then.
  virtual absl::Status Close() = 0;
};

}  // namespace cairn
