// Decides before a run whether the job is restored from a checkpoint.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/config/job_config.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/steps/wait_for_workers.h"

namespace cairn {

// The longest time of a restore, and of the other workers' wait for it.
inline constexpr absl::Duration kRestoreTimeout = absl::Minutes(10);

// Whether checkpoint.restore requests a restore: of the newest checkpoint in checkpoint.directory,
// if there is one, or of the one in a given directory.
bool RestoreWanted(const CheckpointConfig& checkpoint);

// For the first worker, through an unsequenced client, before any worker calls hello. If the
// servers hold one incarnation of the job, nothing happens; but with `fresh`, a checkpoint that
// checkpoint.restore names by its directory replaces their state. If they disagree (JobHoldings) or
// hold nothing, their state is dropped and the job is restored from the checkpoint. Without a
// usable checkpoint, only the remains of a failed restore are dropped. kDataLoss: the servers
// disagree, and there is no checkpoint to restore; names the server that holds nothing of the job.
// kNotFound: no checkpoint in the named directory; lists the existing ones. Other errors as
// PsClient::Restore.
absl::Status RestoreJob(PsClient& client, const JobConfig& job, bool fresh);

// For the other workers: waits until the servers hold one incarnation of the job. kDeadlineExceeded
// after `timeout`. Unless `always`, it waits only while they hold the remains of a failed restore.
absl::Status WaitForJob(PsClient& client, const std::string& job, bool always,
                        const StopRequested& stop_requested,
                        absl::Duration timeout = kRestoreTimeout);

}  // namespace cairn
