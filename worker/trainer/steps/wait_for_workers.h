// Where a job's workers wait for each other: at the start with --fresh, and before evaluation.
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

// A worker that has beaten and then is silent for this long counts as gone.
inline constexpr absl::Duration kSilenceLimit = absl::Seconds(30);

// True: a signal asked the program to stop.
using StopRequested = std::function<bool()>;

// Starting over. The first worker drops the job's state and trains; everyone else must not touch
// the servers before that, and afterwards must not drop it again. So the others look, unnumbered,
// until the first worker beats in its first run: beats that stand still are those of an earlier
// start. `any_run`: starting over is going back to a checkpoint, so it may be a later run.
// `client` is unsequenced. kDeadlineExceeded: no such beat within `patience`. kCancelled:
// stop requested.
absl::Status WaitForFreshStart(PsClient& client, absl::Duration patience, bool any_run,
                               const StopRequested& stop_requested);

struct Others {
  std::vector<int32_t> finished;
  std::vector<int32_t> gone;  // silent for kSilenceLimit, or never seen within `patience`
};

// Waits until every other worker has finished run `run` or is gone, and beats meanwhile under
// `position`. Which workers it waits for is logged. kCancelled: stop requested.
absl::StatusOr<Others> WaitForOthers(PsClient& client, int32_t worker, int32_t workers, int64_t run,
                                     RosterEntry& entry, absl::string_view position,
                                     absl::Duration patience, absl::Duration call_timeout,
                                     const StopRequested& stop_requested);

// "worker 1, worker 2".
std::string WorkersText(absl::Span<const int32_t> workers);

}  // namespace cairn
