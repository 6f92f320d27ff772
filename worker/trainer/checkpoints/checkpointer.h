// Makes a job's checkpoints and keeps the newest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/job_config.h"
#include "common/deadline.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"

namespace cairn {

// For the job's first worker. A checkpoint is a folder of its own (checkpoint_folders.h): every
// server writes its part, whatever it has applied by then, while pushes go on; the manifest comes
// last and says how far each worker was on each server, which is all that a restore needs: workers
// resume after the last push that every part has, and parts that are ahead drop what comes again.
// Afterwards the oldest beyond checkpoint.keep are deleted, and what interrupted attempts left.
// Thread safety: none; one thread calls.
class Checkpointer {
 public:
  // Longest time one checkpoint may take.
  static constexpr absl::Duration kTimeout = absl::Minutes(10);

  // Makes checkpoint.directory if need be. `client` outlives the result. kInvalidArgument: the
  // job's name is too long for a checkpoint's.
  static absl::StatusOr<std::unique_ptr<Checkpointer>> Create(const JobConfig& job,
                                                              PsClient& client);
  // Waits for the one that is being made, kTimeout at most.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Begins one beside the caller's training, after the one before has ended. In a synchronous job
  // it is made at once, while no step can close without the caller: every part has the same steps.
  // A failure is logged: earlier checkpoints stay as they are, and training goes on.
  void Begin(int64_t step);
  // The last one of a run. Its failure is the caller's.
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
  absl::Status Make(int64_t step, bool finished);
  void MakeOrLog(int64_t step);
  absl::Status Write(const CheckpointManifest& wanted, Deadline deadline);
  absl::Status DeleteOld(Deadline deadline);

  const std::string job_;
  const bool synchronous_;
  const int64_t keep_;
  const std::string directory_;  // absolute
  PsClient& client_;
  std::thread thread_;
};

// The last checkpoint of a run, where checkpoint.directory is named: by `running`, which has made
// those before. nullptr: this start took no step, so the checkpoint is made where it is missing.
absl::Status EndCheckpoints(const JobConfig& job, PsClient& client, Checkpointer* running,
                            int64_t step);

}  // namespace cairn
