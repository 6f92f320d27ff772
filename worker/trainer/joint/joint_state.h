// Workers that train as one, at their start: whose state all of them go on with.
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
  int rank = -1;           // whose; -1: nobody has trained, so all begin with the same values
  int64_t next_start = 0;  // RunPosition::start of the run that begins now
  std::string log_line;    // who has which step
};

// `stored`: this worker's position, "" for none. The same answer on every worker: of several the
// newest, of several of those the first. kDataLoss: a position of another program.
absl::StatusOr<NewestState> FindNewestState(CollectiveGroup& group, absl::string_view stored,
                                            absl::Duration timeout);

// Gives every worker the state of worker `from`, bit for bit: values, slots, counts and position.
// It travels as a checkpoint, through a folder in storage.directory, which is removed again, and
// takes the place of what the server of a worker holds of the job. `client` is of this worker's
// server, for `from` one that has hello'd; the others' has no number, and no other client is there.
// Errors as Lockstep, Checkpointer and RestoreJob.
absl::Status ShareState(Lockstep& lockstep, int from, const JobConfig& job, const std::string& task,
                        PsClient& client, absl::Duration timeout);

}  // namespace cairn
