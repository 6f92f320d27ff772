// How fast the wire is between this machine and the servers.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct BenchOptions {
  TargetOptions target;  // without a job
  int64_t mib = 4;       // of a push and of a pull
  double seconds = 1;    // for each measurement
};

// Round trips of 64 bytes, pushes and pulls of `mib` MiB to each server alone, then to all at once,
// by one connection each: into variables of a job of its own, which is dropped at the end, also
// after an error. Pushes are applied (SGD), counted and made as durable as the server makes all of
// them; what is pulled at the end is compared with what was pushed. kDataLoss: it differs.
absl::StatusOr<Answer> RunBench(const BenchOptions& options);

}  // namespace cairn
