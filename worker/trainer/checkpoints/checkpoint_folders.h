// The names of a job's checkpoints in a directory: JOB.step-0000001200-1a2b3c4d, whose last part is
// unique to one attempt. Other names are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"

namespace cairn {

// The longest job name for which the servers accept checkpoint names.
inline constexpr size_t kMaxCheckpointJobBytes = 170;

std::string NewCheckpointName(absl::string_view job, int64_t step);
// Whether NewCheckpointName made `name` for `job`.
bool IsCheckpointName(absl::string_view job, absl::string_view name);

struct CheckpointFolders {
  std::vector<CheckpointManifest> finished;  // oldest first, by number
  std::vector<std::string> damaged;          // why, for each checkpoint whose manifest cannot be
                                             // read
  std::vector<std::string> unfinished;       // names of directories without a manifest
};

// The checkpoints of `job` in `directory`; empty if the directory does not exist.
absl::StatusOr<CheckpointFolders> ListCheckpoints(const std::string& directory,
                                                  absl::string_view job);

// Names of the checkpoints that the newest `keep` supersede. A checkpoint stays until one with at
// least as many steps follows: after a job restarts from scratch, its new checkpoints have fewer.
std::vector<std::string> NotKept(const CheckpointFolders& folders, int64_t keep);

// Those of `unfinished` that have not changed in the `age` before `newest`, a folder beside them,
// last changed. Compares times of the file system only, because hosts' clocks differ.
std::vector<std::string> UnchangedFor(absl::Duration age, const std::string& directory,
                                      const std::string& newest,
                                      const std::vector<std::string>& unfinished);

// Whether the checkpoint has a manifest. True also if the file system refuses to say.
bool IsFinished(const std::string& folder);
// Turns a finished checkpoint into an unfinished one, durably: its parts may be deleted then.
absl::Status RemoveManifest(const std::string& folder);
// Removes the directory of a checkpoint whose parts the servers have deleted. OK if it does not
// exist.
absl::Status RemoveEmptyCheckpoint(const std::string& folder);

}  // namespace cairn
