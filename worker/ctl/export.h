// Writes a job's variables to a file for numpy or safetensors.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct ExportOptions {
  std::string file;  // .npz or .safetensors
  TargetOptions target;
  std::string checkpoint;                // if not empty: export this checkpoint instead of the
                                         // servers' state
  std::string local_transport = "auto";  // for live servers
  std::string scratch;  // for a checkpoint: the parent of its temporary directory; empty: TMPDIR
};

// While the job trains, the variables of live servers are read at slightly different times. The
// variables of a checkpoint are consistent.
absl::StatusOr<Answer> RunExport(const ExportOptions& options);

}  // namespace cairn
