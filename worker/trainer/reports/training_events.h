// What a run tells TensorBoard, and how often.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/job_config.h"
#include "common/optimizer/schedule.h"
#include "worker/client/ps_client.h"
#include "worker/trainer/reports/event_file.h"
#include "worker/trainer/reports/report.h"

namespace cairn {

// One step, as in the metrics file.
struct StepFigures {
  int64_t step = 0;  // of the job
  double loss = 0;
  int64_t examples = 0;
  double seconds = 0;  // since the first step of this start began, evaluations taken off
};

// The tags of a step:
//   loss                 of the step's batch, before its update
//   examples_per_second  since the point before
//   learning_rate        of the job's optimizer at that step, where it is known
//   staleness/mean       of this start's pushes so far, as in the report
// every 100 points and at the end `staleness`, a histogram of the pushes since the one before; and
// eval/auc, eval/log_loss, eval/accuracy, eval/rmse where evaluated.
// Every step is a point until there are 1000 of them, then every second one for 1000 points more,
// every fourth, …: a million steps make 10,000 points of some 150 bytes. Besides, the last step is
// one, and the first to end 10 s after the point before. Points reach the file when 64 KiB have
// come together, after 10 s, at evaluations and at the end.
// Thread safety: none.
class TrainingEvents {
 public:
  // `first_step`: the first that may come. `learning_rate`: see KnownLearningRate. Errors as of
  // EventFile, from every method.
  static absl::StatusOr<std::unique_ptr<TrainingEvents>> Open(
      const std::string& folder, int64_t first_step, std::optional<ScheduleConfig> learning_rate);

  // Every step comes here. Calls `staleness` for those that are points.
  absl::Status StepDone(const StepFigures& figures, bool last,
                        absl::FunctionRef<StalenessSummary()> staleness);
  absl::Status Evaluated(int64_t step, const Evaluation& evaluation);
  absl::Status Close() { return file_->Close(); }
  const std::string& path() const { return file_->path(); }

 private:
  TrainingEvents(std::unique_ptr<EventFile> file, std::optional<ScheduleConfig> learning_rate)
      : file_(std::move(file)), learning_rate_(std::move(learning_rate)) {}
  bool Due(const StepFigures& figures) const;
  absl::Status AddHistogram(int64_t step, const StalenessSummary& staleness);

  const std::unique_ptr<EventFile> file_;
  const std::optional<ScheduleConfig> learning_rate_;
  int64_t stride_ = 1;  // steps from a point to the next
  int64_t points_ = 0;
  int64_t examples_ = 0;    // since the last point
  double seconds_ = 0;      // when that was
  double flushed_at_ = 0;   // in the same seconds
  StalenessSummary shown_;  // in histograms so far
};

// The rate of job.optimizer where a worker knows it at each of its steps: a constant, or the
// schedule of one worker alone. It goes by the servers' updates, to which others add, and
// optimizer.not_finite: skip leaves some out.
std::optional<ScheduleConfig> KnownLearningRate(const JobConfig& job, int32_t workers);

// Where a job has several writers each has a folder of its own, to TensorBoard a run of its own:
// "logs/worker-1" for worker:1.
std::string EventFolder(const std::string& folder, const std::string& task);

}  // namespace cairn
