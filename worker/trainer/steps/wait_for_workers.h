// Waits of a job's workers for each other: at the start with --fresh, and before evaluation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/steps/roster.h"

namespace cairn {

// A worker that has sent heartbeats and then is silent for this long counts as lost.
inline constexpr absl::Duration kSilenceLimit = absl::Seconds(30);

// True: a signal asked the program to stop.
using StopRequested = std::function<bool()>;

// Waits for the first worker to start the job over. The first worker drops the job's state and
// trains; the others must not use the servers before that, nor drop the job again afterwards. So
// they poll, without a worker number, until the first worker's heartbeats in its first run advance;
// heartbeats that do not advance belong to an earlier start. `any_run`: the job goes back to a
// checkpoint, so the run may be a later one. `client` is unsequenced. kDeadlineExceeded: no
// heartbeat advanced within `timeout`. kCancelled: stop requested.
absl::Status WaitForFreshStart(PsClient& client, absl::Duration timeout, bool any_run,
                               const StopRequested& stop_requested);

struct Others {
  std::vector<int32_t> finished;
  // Not heard for kSilenceLimit, or never within `timeout`, while the servers answered.
  std::vector<int32_t> silent;
};

// Waits until every other worker has finished run `run` or is lost, and meanwhile sends heartbeats
// under `position`. Logs which workers it waits for. kCancelled: stop requested.
absl::StatusOr<Others> WaitForOthers(PsClient& client, int32_t worker, int32_t workers, int64_t run,
                                     RosterEntry& entry, absl::string_view position,
                                     absl::Duration timeout, absl::Duration call_timeout,
                                     const StopRequested& stop_requested);

// "worker 1, worker 2".
std::string WorkersText(absl::Span<const int32_t> workers);

}  // namespace cairn
