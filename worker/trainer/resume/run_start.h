// What a start of a worker is: the first, a continuation, or one that finds nothing left to train.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "worker/trainer/resume/run_position.h"
#include "worker/trainer/steps/roster.h"

namespace cairn {

struct RunStart {
  RunPosition position;        // where to go on; position.finished is false
  int64_t end_epoch = 0;       // first epoch that is not read
  bool nothing_to_do = false;  // this worker has trained all it was asked for
  std::string log_line;        // says which case it is
};

// What decides which row of the input is a worker's n-th.
uint64_t DataDigest(const JobConfig& job, int32_t worker, int32_t workers);

// `stored`: the position of this worker's last push, empty if there is none. `roster`: all workers.
// - An unfinished run goes on after its last push; from the epoch's first row where the data, its
//   sharding or its shuffling have changed.
// - data.epochs and data.max_steps are totals of the job: a finished job that has them has nothing
//   to do, so that a worker that is started again after its last step only evaluates and exports.
//   With larger ones it goes on from where it ended.
// - `more` (--continue) asks a finished job for another data.epochs epochs, of data.max_steps steps
//   at most. Where others that were seen are still in the run that this worker has finished, there
//   is nothing to do all the same.
// kDataLoss as RunPosition::Decode.
absl::StatusOr<RunStart> DecideRunStart(const JobConfig& job, absl::string_view stored,
                                        int32_t worker, absl::Span<const RosterRow> roster,
                                        bool more);

// Says of a run that it had no step, and why: `data` has no row for `task`.
std::string NothingTrainedText(const DataConfig& data, absl::string_view task);

}  // namespace cairn
