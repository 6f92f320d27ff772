// Checks whether this machine is fit for servers and workers, and says how to fix each finding.
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
  std::string directory;     // where a server's data would be; empty: the working directory
  std::string cluster_file;  // empty: no addresses are checked
  double timeout_seconds = 3;
  SecurityOptions security;  // its files are checked, and used to call the cluster's servers
};

// The result of one check.
struct Finding {
  enum class Level { kFine, kWarning, kBad };
  Level level = Level::kFine;
  std::string what;   // "open files"
  std::string found;  // "1024 at most"
  std::string fix;    // empty if nothing is wrong
};

// Checks file limits, memory, the disk's write and fsync rate (with a temporary file of 64 MiB),
// the cluster's addresses, GPUs and NCCL. The answer's problem is set if a check is bad;
// warnings do not count.
absl::StatusOr<Answer> RunDoctor(const DoctorOptions& options);

// Single checks, for tests.
Finding JudgeOpenFiles(uint64_t limit);
Finding JudgeDisk(const std::string& directory, double bytes_per_second, double sync_seconds);
// Takes the number of GPUs by their device files, whether CUDA can use them (GpuStatus, and a queue
// on the first one), and whether NCCL can be loaded.
Finding JudgeGpus(int32_t files, const absl::Status& cuda, const absl::Status& nccl);
Answer DoctorAnswer(const std::vector<Finding>& findings);

}  // namespace cairn
