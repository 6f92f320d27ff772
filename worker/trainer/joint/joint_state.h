// Chooses the state from which workers that train as one start.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/config/job_config.h"
#include "worker/client/ps_client.h"
#include "worker/collective/collective_group.h"
#include "worker/trainer/joint/lockstep.h"

namespace cairn {

struct NewestState {
  int rank = -1;           // the rank that has the newest state; -1: no worker has trained, so all
                           // begin with the same values
  int64_t next_start = 0;  // RunPosition::start of the run that begins now
  std::string log_line;    // which worker has which step
};

// `stored`: this worker's position, "" for none. Every worker gets the same answer: the newest
// state, and of several the one with the lowest rank. kDataLoss: a position of another program.
absl::StatusOr<NewestState> FindNewestState(CollectiveGroup& group, absl::string_view stored,
                                            absl::Duration timeout);

// Gives every worker the state of worker `from`, bit for bit: values, slots, counts and position.
// The state travels as a checkpoint, through a directory in storage.directory that is removed
// afterwards, and replaces the job's state on each worker's server. `client` is connected to this
// worker's server: for `from` it has called hello; for the others it has no worker number, and no
// other client is connected. Errors as Lockstep, Checkpointer and RestoreJob.
absl::Status ShareState(Lockstep& lockstep, int from, const JobConfig& job, const std::string& task,
                        PsClient& client, absl::Duration timeout);

}  // namespace cairn
