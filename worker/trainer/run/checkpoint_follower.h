// The evaluator task: scores a job's checkpoints as they come.
#pragma once

#include "absl/status/statusor.h"
#include "worker/trainer/reports/report.h"
#include "worker/trainer/run/in_process_server.h"
#include "worker/trainer/run/trainer.h"

namespace cairn {

// Evaluates data.eval with the newest checkpoint in checkpoint.directory, then with each newer one;
// those that came and went meanwhile are left out. Logs each, and writes a line of
// output.metrics_file, a point in output.tensorboard. Needs no server; changes nothing. Ends
// - "completed" after the checkpoint that ends a run which was still under way when this began,
//   or after the end of an earlier run when nothing newer comes for
//   evaluation.checkpoint_wait_seconds;
// - "interrupted" where stop is requested.
// The report has the last evaluation, its step as total_steps, and how many there were.
// kDeadlineExceeded: nothing newer for that long in a run that has not ended; names the directory
// and who makes them. AsBadInput: no data.eval or checkpoint.directory. Else as OpenCheckpoint and
// RunEvaluation.
absl::StatusOr<Report> FollowCheckpoints(const TrainerOptions& options,
                                         const CheckpointOpener& open);

}  // namespace cairn
