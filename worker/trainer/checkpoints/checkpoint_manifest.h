// The manifest of a job's checkpoint: the parts that its servers wrote, and each worker's progress.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/client/checkpoint_part.h"

namespace cairn {

// The file MANIFEST.json in a checkpoint's folder, written last: a directory without it is no
// checkpoint. JSON: format, job, name, number, step, finished, timeline, made (UTC), seconds,
// variables (for people), servers (folder, host, files with their XXH3, workers with their sequence
// and position) and a checksum of these (HashBytes of the compact text without it). Thread safety:
// a value.
struct CheckpointManifest {
  static constexpr char kFileName[] = "MANIFEST.json";
  static constexpr int64_t kFormat = 1;

  std::string job;
  std::string name;
  int64_t number = 0;  // counts the job's checkpoints in the directory; the newest has the highest
                       // number
  int64_t step = 0;    // of the first worker, when it asked; each worker's own step is in its
                       // position
  bool finished = false;  // the run had ended
  int64_t timeline = 0;   // the timeline that the servers held (common/timeline.h)
  std::string made;       // "2030-01-31T12:34:56Z"
  double seconds = 0;     // how long the checkpoint took
  std::vector<ServerCheckpoint> servers;

  // Writes the manifest durably and atomically. kResourceExhausted: ReadFrom would refuse it,
  // because it is too long for so many servers and workers.
  absl::Status WriteTo(const std::string& folder) const;
  // kNotFound: no such file. kDataLoss: not the output of WriteTo. kFailedPrecondition: another
  // format.
  static absl::StatusOr<CheckpointManifest> ReadFrom(const std::string& folder);
};

}  // namespace cairn
