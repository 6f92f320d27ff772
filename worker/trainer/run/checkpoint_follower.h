// The evaluator task: scores a job's checkpoints as they appear.
#pragma once

#include "absl/status/statusor.h"
#include "worker/trainer/reports/report.h"
#include "worker/trainer/run/in_process_server.h"
#include "worker/trainer/run/trainer.h"

namespace cairn {

// Evaluates data.eval with the newest checkpoint in checkpoint.directory, then with each newer one;
// checkpoints that are deleted before they are read are skipped. Logs each result, and writes it as
// a line of output.metrics_file and a point in output.tensorboard. Lines and points of an earlier
// evaluator stay, unless the job has started over: TensorBoard discards points from the first
// scored step on, and a file whose last line is of a later step is truncated. Needs no server;
// changes nothing. Ends
// - "completed" after the final checkpoint of a run that was active when this began, or of an
//   earlier run if no newer checkpoint appears for
//   evaluation.checkpoint_wait_seconds;
// - "interrupted" if a stop is requested.
// The report has the last evaluation, its step as total_steps, and the number of checkpoints
// scored. kDeadlineExceeded: no newer checkpoint for that long in an unfinished run; names the
// directory and the task that should write it. AsBadInput: no data.eval or checkpoint.directory.
// Else as OpenCheckpoint and RunEvaluation.
absl::StatusOr<Report> FollowCheckpoints(const TrainerOptions& options,
                                         const CheckpointOpener& open);

}  // namespace cairn
