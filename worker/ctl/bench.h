// Measures how fast the network is between this machine and the servers.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct BenchOptions {
  TargetOptions target;  // without a job
  int64_t mib = 4;       // size of a push and of a pull
  double seconds = 1;    // for each measurement
};

// Measures round trips of 64 bytes, then pushes and pulls of `mib` MiB: to each server alone, then
// to all at once, over one connection each. The variables belong to a job of the bench, which is
// dropped at the end, also after an error. Pushes are applied (SGD), counted and made durable like
// any other push. The final pull is compared with the sum of the pushes. kDataLoss: they differ.
absl::StatusOr<Answer> RunBench(const BenchOptions& options);

}  // namespace cairn
