// Whether this machine is fit for servers and workers: each finding with its fix.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/security_options.h"
#include "worker/ctl/answer.h"

namespace cairn {

struct DoctorOptions {
  std::string directory;     // where a server's data would be; empty: the working folder
  std::string cluster_file;  // empty: no addresses are looked at
  double timeout_seconds = 3;
  SecurityOptions security;  // its files are judged, and used with the cluster's servers
};

// One thing that was looked at.
struct Finding {
  enum class Level { kFine, kWarning, kBad };
  Level level = Level::kFine;
  std::string what;   // "open files"
  std::string found;  // "1024 at most"
  std::string fix;    // empty where it is fine
};

// File limits, memory, the disk's write and fsync rate (64 MiB in a file of its own, which goes
// away), the cluster's addresses, GPUs and NCCL. The answer's finding is not OK where something is
// bad; a warning is none.
absl::StatusOr<Answer> RunDoctor(const DoctorOptions& options);

// Parts of it, for tests.
Finding JudgeOpenFiles(uint64_t limit);
Finding JudgeDisk(const std::string& directory, double bytes_per_second, double sync_seconds);
// GPUs by their device files; whether CUDA can use them (GpuStatus, and a queue on the first);
// NCCL.
Finding JudgeGpus(int32_t files, const absl::Status& cuda, const absl::Status& nccl);
Answer DoctorAnswer(const std::vector<Finding>& findings);

}  // namespace cairn
