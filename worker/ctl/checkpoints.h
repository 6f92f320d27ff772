// Operates on a job's checkpoints from outside the job: list, verify, create, restore.
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
// Lists the finished checkpoints, oldest first, then the unfinished and corrupt ones.
absl::StatusOr<Answer> ListCheckpointsOf(const CheckpointListOptions& options);

// Compares every file of a checkpoint (or of all finished ones in a directory) with the checksums
// in its manifest. The answer's finding is kDataLoss if a file is corrupt or missing.
absl::StatusOr<Answer> VerifyCheckpoints(const std::string& folder);

struct CheckpointCreateOptions {
  TargetOptions target;
  std::string directory;  // on every server's host; empty: checkpoint.directory of the job file
};
// Makes a checkpoint while the job trains. Its name, JOB.kept-TIME-…, keeps it out of the job's own
// retention. Under sync no step may close in the meantime: a few attempts are made, then kAborted.
// kNotFound: the servers hold nothing of the job.
absl::StatusOr<Answer> CreateCheckpoint(const CheckpointCreateOptions& options);

struct CheckpointRestoreOptions {
  TargetOptions target;  // an empty job name: the checkpoint's
  std::string folder;
  bool replace = false;  // drop the servers' state of the job first
};
// kFailedPrecondition: workers of the job are live. kAlreadyExists: the servers hold the job, and
// `replace` is not set.
absl::StatusOr<Answer> RestoreCheckpoint(const CheckpointRestoreOptions& options);

}  // namespace cairn
