// How the workers of a job keep together (DESIGN §5).
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

enum class ConsistencyMode {
  kAsync,  // nobody waits
  kSsp,    // bounded staleness: step t begins when others have finished t - bound - 1
  kSync,   // the mean of a step's contributions, once
};

enum class SyncMean { kRows, kContributors };

// What the end of a worker's lease means to the others.
enum class WorkerLoss {
  kContinue,  // it leaves clocks and quorums
  kFail,      // their calls fail
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

// "ssp, staleness_bound_steps 2, on_worker_loss continue": with the job file's words.
std::string ConsistencyText(const Consistency& consistency);

}  // namespace cairn
