// Makes a job's checkpoints and keeps the newest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/job_config.h"
#include "common/deadline.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"

namespace cairn {

// For the job's first worker. Each checkpoint is a directory (checkpoint_folders.h). Every server
// writes as its part the pushes that it has applied so far, while pushes continue. The manifest is
// written last and records each worker's progress on each server. A restore needs nothing else:
// each worker resumes after its last push that every part contains, and the parts that are ahead
// drop the repeated pushes. Afterwards the oldest checkpoints beyond checkpoint.keep and the
// remains of failed and interrupted attempts are deleted. Another client may make checkpoints of
// the job in the same directory, so an unfinished one of another object counts as
// interrupted only once it has not changed for kTimeout. Thread safety: none; one thread calls.
class Checkpointer {
 public:
  // Longest time one checkpoint may take.
  static constexpr absl::Duration kTimeout = absl::Minutes(10);

  // Creates checkpoint.directory if it is missing. `client` outlives the result. kInvalidArgument:
  // the job's name is too long for a checkpoint name.
  static absl::StatusOr<std::unique_ptr<Checkpointer>> Create(const JobConfig& job,
                                                              PsClient& client);
  // Waits for the running checkpoint, kTimeout at most.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Waits for the previous checkpoint, then begins one that runs in parallel with training. In a
  // synchronous job the checkpoint is made before Begin returns, while no step can close without
  // the caller, so every part has the same steps; likewise if the system refuses a thread. A
  // failure is logged: earlier checkpoints stay, and training continues.
  void Begin(int64_t step);
  // Makes a checkpoint before it returns. Returns the name of its folder, or its failure.
  absl::StatusOr<std::string> MakeNow(int64_t step);
  // Like MakeNow, for the last checkpoint of a run, whose manifest says that the run has ended.
  absl::Status End(int64_t step);

 private:
  Checkpointer(const JobConfig& job, std::string directory, PsClient& client)
      : job_(job.name),
        synchronous_(job.strategy.consistency == "sync" ||
                     job.strategy.type == "multi_worker_mirrored"),
        keep_(job.checkpoint.keep),
        directory_(std::move(directory)),
        client_(client) {}
  void Join();
  absl::StatusOr<std::string> Make(int64_t step, bool finished);
  void MakeOrLog(int64_t step);
  absl::Status Write(const CheckpointManifest& wanted, Deadline deadline);
  // Deletes the checkpoints that `made` supersedes, and remains, as far as possible. Returns the
  // first error.
  absl::Status DeleteOld(const std::string& made, Deadline deadline);
  absl::Status DeleteUnfinished(const std::string& name, Deadline deadline);
  // The names of checkpoints to delete.
  struct Old {
    std::vector<std::string> unfinished;
    std::vector<std::string> superseded;
  };
  absl::StatusOr<Old> ListOld(const std::string& made) const;

  const std::string job_;
  const bool synchronous_;
  const int64_t keep_;
  const std::string directory_;  // absolute
  PsClient& client_;
  std::vector<std::string> failed_;  // attempts and deletions of this object that left files
  std::thread thread_;
};

// Makes the last checkpoint of a run if checkpoint.directory is set, through `running`, which made
// the earlier ones. nullptr: this start took no step, so the checkpoint is made only if it is
// missing.
absl::Status EndCheckpoints(const JobConfig& job, PsClient& client, Checkpointer* running,
                            int64_t step);

}  // namespace cairn
