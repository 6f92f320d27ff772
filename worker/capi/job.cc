// The C interface: checkpoints and statistics of a job.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/config/job_config.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"
#include "worker/trainer/checkpoints/checkpointer.h"
#include "worker/trainer/resume/job_restore.h"

namespace cairn::capi {
namespace {

absl::Status MakeCheckpoint(Client& client, const char* directory, int64_t step, int64_t keep,
                            char** checkpoint) {
  RETURN_IF_ERROR(CheckNotNull(directory, "directory"));
  RETURN_IF_ERROR(CheckNotNull(checkpoint, "checkpoint"));
  if (step < 0 || keep < 0) {
    return InvalidArgument("checkpoint: step is ", step, " and keep is ", keep,
                           "; expected 0 or more");
  }
  JobConfig job;
  job.name = client.job;
  job.checkpoint.directory = directory;
  job.checkpoint.keep = keep == 0 ? std::numeric_limits<int64_t>::max() : keep;
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpointer> checkpointer,
                   Checkpointer::Create(job, *client.ps));
  ASSIGN_OR_RETURN(const std::string name, checkpointer->MakeNow(step));
  *checkpoint = CopyText(absl::StrCat(directory, "/", name));
  return absl::OkStatus();
}

absl::Status Restore(Client& client, const char* directory) {
  RETURN_IF_ERROR(CheckNotNull(directory, "directory"));
  if (client.worker >= 0) {
    return FailedPrecondition("restore: this client is worker ", client.worker,
                              ", which a restore would fence; connect a client that is no worker");
  }
  JobConfig job;
  job.name = client.job;
  job.checkpoint.restore = directory;
  return RestoreJob(*client.ps, job, /*fresh=*/true);
}

}  // namespace

extern "C" {

int cairn_checkpoint(cairn_client* client, const char* directory, int64_t step, int64_t keep,
                     char** checkpoint) {
  return RunWith("cairn_checkpoint", client, 0, [&](Client& c, Deadline) {
    return MakeCheckpoint(c, directory, step, keep, checkpoint);
  });
}

int cairn_restore(cairn_client* client, const char* directory) {
  return RunWith("cairn_restore", client, 0,
                 [&](Client& c, Deadline) { return Restore(c, directory); });
}

int cairn_counters(cairn_client* client, cairn_counters_t* counters) {
  return RunWith("cairn_counters", client, 0, [&](Client& c, Deadline) -> absl::Status {
    RETURN_IF_ERROR(CheckNotNull(counters, "counters"));
    const ClientCounters now = c.ps->counters();
    *counters = {.bytes_pushed = now.bytes_pushed,
                 .bytes_pulled = now.bytes_pulled,
                 .retries = now.retries,
                 .pushes_dropped = now.pushes_dropped,
                 .pushes_late = now.pushes_late,
                 .retained_bytes = now.retained_bytes,
                 .retained_bytes_max = now.retained_bytes_max,
                 .replayed_pushes = now.replayed_pushes,
                 .replayed_bytes = now.replayed_bytes,
                 .replay_seconds = now.replay_seconds};
    return absl::OkStatus();
  });
}

int cairn_staleness(cairn_client* client, cairn_staleness_t* staleness) {
  return RunWith("cairn_staleness", client, 0, [&](Client& c, Deadline) -> absl::Status {
    RETURN_IF_ERROR(CheckNotNull(staleness, "staleness"));
    const StalenessSummary now = c.ps->staleness();
    *staleness = {.mean = now.mean, .p99 = now.p99, .max = now.max};
    return absl::OkStatus();
  });
}

}  // extern "C"

}  // namespace cairn::capi
