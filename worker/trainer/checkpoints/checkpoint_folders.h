// A job's checkpoints in a directory, by name: JOB.step-0000001200-1a2b3c4d, the last part being
// one attempt's own. Names of another form are nobody's business here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/trainer/checkpoints/checkpoint_manifest.h"

namespace cairn {

// Longest job whose checkpoints' names the servers take.
inline constexpr size_t kMaxCheckpointJobBytes = 170;

std::string NewCheckpointName(absl::string_view job, int64_t step);
// Whether NewCheckpointName made it for `job`.
bool IsCheckpointName(absl::string_view job, absl::string_view name);

struct CheckpointFolders {
  std::vector<CheckpointManifest> finished;  // the oldest first, by number
  std::vector<std::string> damaged;          // why, of those whose manifest cannot be read
  std::vector<std::string> unfinished;       // names of folders without a manifest
};

// Of `job` in `directory`; empty where that is not there.
absl::StatusOr<CheckpointFolders> ListCheckpoints(const std::string& directory,
                                                  absl::string_view job);

// Names of those that the newest `keep` make superfluous: none whose successor has fewer steps, as
// where the job began anew, until one with as many has come.
std::vector<std::string> NotKept(const CheckpointFolders& folders, int64_t keep);

// Makes an unfinished one of a finished one.
absl::Status RemoveManifest(const std::string& folder);
// Removes the folder of a checkpoint whose parts the servers have deleted. OK where it is gone.
absl::Status RemoveEmptyCheckpoint(const std::string& folder);

}  // namespace cairn
