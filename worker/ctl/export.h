// A job's variables as a file for numpy or safetensors.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct ExportOptions {
  std::string file;  // .npz or .safetensors
  TargetOptions target;
  std::string checkpoint;                // not empty: of this one instead of servers
  std::string local_transport = "auto";  // to live servers
  std::string scratch;  // for a checkpoint: where its folder of the moment is; empty: TMPDIR
};

// While training goes on, variables of live servers are of slightly different moments; a
// checkpoint's belong together.
absl::StatusOr<Answer> RunExport(const ExportOptions& options);

}  // namespace cairn
