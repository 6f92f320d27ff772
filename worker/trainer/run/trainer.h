// The modes of cairn-worker: train, evaluate, predict.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/config/job_config.h"
#include "common/deadline.h"
#include "worker/client/ps_client.h"
#include "worker/collective/collective_group.h"
#include "worker/trainer/reports/report.h"
#include "worker/trainer/run/in_process_server.h"
#include "worker/trainer/steps/wait_for_workers.h"

namespace cairn {

class RunMeter;

// Connects to the servers; fills in their addresses.
using Connector =
    std::function<absl::StatusOr<std::unique_ptr<PsClient>>(ClientOptions options, Deadline)>;

struct TrainerOptions {
  JobConfig job;
  int32_t worker = 0;  // ordinal among the training tasks; 0 evaluates and exports
  int32_t workers = 1;
  std::string task = "worker:0";  // for messages and the report
  bool fresh = false;             // worker 0 drops the job's state, and the others wait for it
                                  // to do so
  bool trains_more = false;       // --continue: run_start.h
  // Called with "--fresh" once the job has started over, and with "--continue" once the further run
  // has begun: the same start again, after a crash, must not ask for it then. Null: nobody asks.
  std::function<void(absl::string_view)> obeyed;
  // output.metrics_file is this worker's alone, rather than the name of the job's.
  bool own_metrics_file = false;
  StopRequested stop_requested;      // polled once in each step and in every wait
  CheckpointOpener open_checkpoint;  // for checkpoint.warm_start
  // For workers that train as one (multi_worker_mirrored): this is rank `worker` of `workers`, each
  // with its own server that no other worker connects to. Null: all workers share the servers.
  CollectiveGroup* group = nullptr;
  // Records a training run; null: not recorded. Outlives the run.
  RunMeter* meter = nullptr;
};

// Trains the rest of the job (run_start.h), which may be nothing. Worker 0 then waits for the
// others, evaluates data.eval and writes output.export. Returns when the pushes are durable; status
// "interrupted" if a stop was requested. Errors as PsClient; AsBadInput if the job's files are at
// fault (exit_status.h).
//
// With a `group` the workers train as one: every step covers all workers' rows and leaves the same
// bits on each of their servers (lockstep.h). They begin with the newest state among them
// (joint_state.h), only the first one writes metrics and checkpoints, and a stop signal to one
// stops all after the same step: kAborted on the others.
//
// Thread safety: may run several times at once in a process, for different workers or jobs, which
// write different files.
absl::StatusOr<Report> RunTraining(const TrainerOptions& options, const Connector& connect);

// Evaluates data.eval with the servers' variables, and exports them if output.export is set.
// Changes nothing. kNotFound: the servers do not have the job's variables.
absl::StatusOr<Report> RunEvaluation(const TrainerOptions& options, const Connector& connect);

// Writes predictions for data.eval to `path` (evaluator.h); otherwise as RunEvaluation.
absl::StatusOr<Report> RunPrediction(const TrainerOptions& options, const std::string& path,
                                     const Connector& connect);

}  // namespace cairn
