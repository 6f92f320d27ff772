// Decides what a worker does when it starts: train from the beginning, continue, or nothing.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "worker/trainer/resume/run_position.h"
#include "worker/trainer/steps/roster.h"

namespace cairn {

struct RunStart {
  RunPosition position;        // where to continue; position.finished is false
  int64_t end_epoch = 0;       // first epoch that is not read
  bool nothing_to_do = false;  // this worker has finished its training
  std::string log_line;        // says which case applies
};

// A digest of the settings that decide which row of the input is a worker's n-th.
uint64_t DataDigest(const JobConfig& job, int32_t worker, int32_t workers);

// `stored`: the position of this worker's last push, empty if there is none. `roster`: all workers.
// - An unfinished run continues after its last push, or from the epoch's first row if the data, its
//   sharding or its shuffling have changed.
// - data.epochs and data.max_steps are totals of the job. A finished job that has reached them has
//   nothing to train, so a worker restarted after its last step only evaluates and exports. With
//   larger totals the job continues from its end.
// - `more` (--continue) asks a finished job for another data.epochs epochs, of data.max_steps steps
//   at most. If other workers are still in the run that this worker has finished, there is nothing
//   to train either.
//
// kDataLoss as RunPosition::Decode.
absl::StatusOr<RunStart> DecideRunStart(const JobConfig& job, absl::string_view stored,
                                        int32_t worker, absl::Span<const RosterRow> roster,
                                        bool more);

// Explains why a run had no step: `data` has no row for `task`.
std::string NothingTrainedText(const DataConfig& data, absl::string_view task);

}  // namespace cairn
