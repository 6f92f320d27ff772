// How far apart the steps of a job's workers may be (ps_server/CONSISTENCY.md).
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

enum class ConsistencyMode {
  kAsync,  // workers never wait for each other
  kSsp,    // bounded staleness: step t begins when all others have finished t - bound - 1
  kSync,   // each step applies the mean of its contributions, once
};

enum class SyncMean { kRows, kContributors };

// How the expiry of a worker's lease affects the other workers.
enum class WorkerLoss {
  kContinue,  // the lost worker no longer counts in clocks and quorums
  kFail,      // the other workers' calls fail
};

// Thread safety: a value.
struct Consistency {
  ConsistencyMode mode = ConsistencyMode::kAsync;
  int64_t staleness_bound_steps = 0;  // kSsp; >= 0
  int32_t replicas_to_aggregate = 0;  // kSync; 0: every worker
  SyncMean sync_mean = SyncMean::kRows;
  WorkerLoss on_worker_loss = WorkerLoss::kContinue;

  bool operator==(const Consistency&) const = default;
};

// "ssp, staleness_bound_steps 2, on_worker_loss continue": uses the words of the job file.
std::string ConsistencyText(const Consistency& consistency);

}  // namespace cairn
