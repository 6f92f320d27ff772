// Before a run: whether the job comes from a checkpoint.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/config/job_config.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/steps/wait_for_workers.h"

namespace cairn {

// Longest time a restore may take, and others wait for it.
inline constexpr absl::Duration kRestoreTimeout = absl::Minutes(10);

// What checkpoint.restore asks for: nothing; the newest checkpoint in checkpoint.directory, if
// there is one; or the one in a folder.
bool RestoreWanted(const CheckpointConfig& checkpoint);

// For the first worker, through an unsequenced client, before any worker says hello. Where the
// servers hold one life of the job, nothing happens; with `fresh` a checkpoint that
// checkpoint.restore names by its folder takes the place of what they hold. Where they disagree
// (JobHoldings), or hold nothing, the job is made from the checkpoint, what they hold being dropped
// first. Without a checkpoint that may be used, what a failed restore has left is dropped.
// kDataLoss: the servers disagree, and there is no checkpoint to restore; names the server that
// holds nothing of the job. kNotFound: no checkpoint in the folder that was named; lists those
// there are. Else as PsClient::Restore.
absl::Status RestoreJob(PsClient& client, const JobConfig& job, bool fresh);

// For the other workers: until the servers hold one life of the job. kDeadlineExceeded after
// `patience`.
// `always`: else only while they hold what a failed restore has left.
absl::Status WaitForJob(PsClient& client, const std::string& job, bool always,
                        const StopRequested& stop_requested,
                        absl::Duration patience = kRestoreTimeout);

}  // namespace cairn
