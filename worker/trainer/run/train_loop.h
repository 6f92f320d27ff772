// The steps of one run of one worker.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/input/reader.h"
#include "worker/models/model.h"
#include "worker/trainer/checkpoints/checkpointer.h"
#include "worker/trainer/devices/resident_state.h"
#include "worker/trainer/joint/lockstep.h"
#include "worker/trainer/reports/progress.h"
#include "worker/trainer/reports/report.h"
#include "worker/trainer/reports/run_meter.h"
#include "worker/trainer/reports/run_output.h"
#include "worker/trainer/resume/run_start.h"
#include "worker/trainer/run/divergence.h"
#include "worker/trainer/run/evaluator.h"
#include "worker/trainer/steps/roster.h"
#include "worker/trainer/steps/step_pipeline.h"
#include "worker/trainer/steps/wait_for_workers.h"
#include "worker/trainer/steps/wire_formats.h"

namespace cairn {

// The objects that the loop uses; all outlive it.
struct TrainLoopParts {
  const JobConfig& job;
  const Model& model;
  PsClient& client;
  Reader& reader;
  RunOutput& output;
  RosterEntry& roster_entry;
  WireFormats& formats;
  Evaluator* evaluator = nullptr;        // used every evaluation.every_steps; null: this worker
                                         // does not evaluate
  Checkpointer* checkpointer = nullptr;  // used every checkpoint.every_steps; null: this worker
                                         // makes no checkpoints
  RunMeter* meter = nullptr;             // null: not measured
  ResidentState* resident = nullptr;   // the variables stay on the GPUs; null: they travel through
                                       // the pipeline
  std::string task;                    // "worker:0"
  std::function<void()> stored_first;  // called once the servers have a position of this start
  Lockstep* lockstep = nullptr;        // of workers that train as one; null: this worker trains
                                       // alone
  bool synchronous = false;  // a training push contributes to a mean and must contain nothing else
  absl::Duration call_timeout;
  StopRequested stop_requested;
};

// Thread safety: none.
class TrainLoop {
 public:
  TrainLoop(const TrainLoopParts& parts, const RunStart& start);

  // Trains to the end of the run, to data.max_steps or until a stop is requested. Every push
  // carries the position after it; the run's last push also announces the end of the run in the
  // roster.
  absl::Status Run();

  // The position after the last step pushed.
  const RunPosition& position() const { return position_; }
  // Whether a requested stop ended the run early.
  bool stopped() const { return stopping_; }
  int64_t steps() const { return steps_done_; }
  int64_t examples() const { return examples_; }
  // Training time, without evaluations.
  double seconds() const { return seconds_; }
  std::optional<double> train_loss() const { return recent_loss_.mean(); }

 private:
  // Reads the rows of step `number`. False: the input or max_steps ends before it.
  absl::StatusOr<bool> Read(int64_t number);
  // Reads and plans step `number`, unless the input or max_steps ends before it.
  absl::Status Load(int64_t number);
  // All steps, until the end of the run, a stop or an error.
  absl::Status DoSteps();
  absl::Status DoStep(int64_t number);
  // Counts step `number` in the position.
  void Advance(int64_t number);
  // Stores the variables that are on the GPU, as of the steps so far.
  absl::Status WriteBack(bool wait);
  // At the end, also after an error that is not the GPUs'.
  absl::Status EndResident(const absl::Status& trained);
  // Whether an error of a step is another worker's: only the gradients of this step are lost on
  // this worker's GPUs.
  bool IsOfOthers(const absl::Status& status) const;
  // The servers have a position of this start.
  void NoteStored();
  // Prepares the push of step `number`.
  void PreparePush(int64_t number, bool finishes);
  // Announces the end of the run in a separate push; every push before it has been answered.
  absl::Status AnnounceEnd();
  // `loss` is the mean over `rows`; `last`: no step follows.
  absl::Status Record(int64_t number, double loss, int64_t rows, bool last);
  // When due, draws the progress bar, or without a terminal logs a line.
  void ShowProgress(double loss, const Progress& progress, absl::Duration now);
  bool CheckpointDue() const;
  bool EvaluationDue() const;
  // Evaluates and makes checkpoints if due after step `number`; workers that train as one wait
  // in the meantime.
  absl::Status DoWhatIsDue(int64_t number);
  // OK if a requested stop ends the evaluation: the loop then ends as after any other step.
  absl::Status Evaluate();
  // The share of the run, in [0, 1], that is done with `batch`.
  double RunShare(const Batch& batch) const;

  const TrainLoopParts parts_;
  RunPosition position_;
  const int64_t end_epoch_;
  int64_t max_loads_;  // how many steps data.max_steps leaves to this start
  StepPipeline pipeline_;
  int64_t loaded_ = 0;
  bool input_ended_ = false;
  bool stored_ = false;  // the servers have a position of this start
  bool stopping_ = false;

  int64_t steps_done_ = 0;
  int64_t examples_ = 0;
  absl::Duration started_;
  absl::Duration paused_;
  absl::Duration last_step_end_;
  double seconds_ = 0;
  RecentMean recent_loss_;
  DivergenceGuard guard_;
  ProgressEstimate estimate_;
  ProgressBar bar_;
  std::optional<ProgressLines> lines_;  // set if stderr is no terminal
};

}  // namespace cairn
