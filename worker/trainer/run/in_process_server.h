// The composition root: a parameter server in the worker's own process, for one without a cluster
// and to look into checkpoints.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/job_config.h"
#include "worker/client/ps_client.h"

namespace cairn {

// An engine on storage.directory/NAME of the job. Thread safety: none.
class InProcessServer {
 public:
  virtual ~InProcessServer() = default;

  // Makes the folder if `create`, else kNotFound where there is none: nothing has been trained.
  // `task`: of several workers with a server each, one but the first, as in "worker:1"; its folder
  // is storage.directory/NAME@worker-1, which is no job's.
  // Errors as Engine::Open.
  static absl::StatusOr<std::unique_ptr<InProcessServer>> Open(const JobConfig& job, bool create,
                                                               absl::string_view task = "");

  // The server outlives the client.
  virtual absl::StatusOr<std::unique_ptr<PsClient>> Connect(const ClientOptions& options,
                                                            Deadline deadline) = 0;
  // Flushes and closes. The clients are gone by then.
  virtual absl::Status Close() = 0;
};

// Opens a checkpoint, by its folder, to be read.
using CheckpointOpener =
    std::function<absl::StatusOr<std::unique_ptr<InProcessServer>>(const std::string& folder)>;

// Restores what checkpoint `folder` has of its job into a server with an empty store of its own in
// storage.directory/.NAME.`purpose` (no job begins with a dot), which goes away with the result;
// holds all of it in memory.
// Every server's part must be within reach. Errors as RestoreJob, and kResourceExhausted where the
// machine's memory is too small.
absl::StatusOr<std::unique_ptr<InProcessServer>> OpenCheckpoint(const JobConfig& job,
                                                                const std::string& folder,
                                                                const std::string& purpose);

}  // namespace cairn
