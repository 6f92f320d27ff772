// The composition root: a parameter server in the worker's own process, for a worker without a
// cluster and for reading checkpoints.
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

  // Creates the directory if `create`; otherwise kNotFound if it is missing: nothing has been
  // trained. `task`, as in "worker:1": set for all but the first of several workers with a server
  // each; the directory is then storage.directory/NAME@worker-1, which no job's name can be. Errors
  // as Engine::Open.
  static absl::StatusOr<std::unique_ptr<InProcessServer>> Open(const JobConfig& job, bool create,
                                                               absl::string_view task = "");

  // The server outlives the client.
  virtual absl::StatusOr<std::unique_ptr<PsClient>> Connect(const ClientOptions& options,
                                                            Deadline deadline) = 0;
  // Flushes and closes. All clients must have been destroyed.
  virtual absl::Status Close() = 0;
};

// Opens the checkpoint in a directory for reading.
using CheckpointOpener =
    std::function<absl::StatusOr<std::unique_ptr<InProcessServer>>(const std::string& folder)>;

// Restores the job of checkpoint `folder` into a server with its own empty store in
// storage.directory/.NAME.`purpose` (no job begins with a dot), which is deleted with the result,
// as are the remains of a killed process there. Holds all of the job in memory. Every server's part
// must be readable here. Errors as RestoreJob, and kResourceExhausted if the machine has too little
// memory.
absl::StatusOr<std::unique_ptr<InProcessServer>> OpenCheckpoint(const JobConfig& job,
                                                                const std::string& folder,
                                                                const std::string& purpose);

}  // namespace cairn
