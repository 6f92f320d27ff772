// Checkpoints from outside the job: what there is, whether it is whole, one more, back to one.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct CheckpointListOptions {
  std::string directory;  // empty: checkpoint.directory of the job file
  std::string job;        // a name or a job file; empty: every job's
};
// Finished ones, the oldest first, unfinished and damaged ones.
absl::StatusOr<Answer> ListCheckpointsOf(const CheckpointListOptions& options);

// Every file of a checkpoint (or of all finished ones in a directory) against the checksums of its
// manifest. The answer's finding is kDataLoss where something is damaged or missing.
absl::StatusOr<Answer> VerifyCheckpoints(const std::string& folder);

struct CheckpointCreateOptions {
  TargetOptions target;
  std::string directory;  // on every server's host; empty: checkpoint.directory of the job file
};
// Beside the job's training. Its name, JOB.kept-TIME-…, is none of those that the job's own
// retention deletes. Under sync no step may close meanwhile: tried a few times, then kAborted.
// kNotFound: the servers hold nothing of the job.
absl::StatusOr<Answer> CreateCheckpoint(const CheckpointCreateOptions& options);

struct CheckpointRestoreOptions {
  TargetOptions target;  // an empty job: the checkpoint's
  std::string folder;
  bool replace = false;  // what the servers hold of the job is dropped first
};
// kFailedPrecondition: workers of the job are live. kAlreadyExists: the servers hold the job, and
// `replace` is not set.
absl::StatusOr<Answer> RestoreCheckpoint(const CheckpointRestoreOptions& options);

}  // namespace cairn
