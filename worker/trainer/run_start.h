// What a start of a worker is: the first, a continuation, or one more run of a finished job.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "worker/trainer/roster.h"
#include "worker/trainer/run_position.h"

namespace cairn {

struct RunStart {
  RunPosition position;        // where to go on; position.finished is false
  int64_t end_epoch = 0;       // first epoch that is not read
  bool nothing_to_do = false;  // this worker has finished a run that others have not
  std::string log_line;        // says which case it is
};

// What decides which row of the input is a worker's n-th.
uint64_t DataDigest(const JobConfig& job, int32_t worker, int32_t workers);

// `stored`: the position of this worker's last push, empty if there is none. `roster`: all workers.
// - An unfinished run goes on after its last push; from the epoch's first row where the data, its
//   sharding or its shuffling have changed.
// - A finished one begins the next run, for data.epochs more (or data.max_steps).
// - Where others have finished a run that this worker has not begun, this worker is late for it and
//   joins; where others that were seen are still in the run that this worker has finished, there is
//   nothing to do.
// kDataLoss as RunPosition::Decode.
absl::StatusOr<RunStart> DecideRunStart(const JobConfig& job, absl::string_view stored,
                                        int32_t worker, absl::Span<const RosterRow> roster);

// Says of a run that it had no step, and why: `data` has no row for `task`.
std::string NothingTrainedText(const DataConfig& data, absl::string_view task);

}  // namespace cairn
