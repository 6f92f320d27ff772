// The statistics that a run writes for TensorBoard, and how often.
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
#include "worker/ops/gpu_usage.h"
#include "worker/trainer/reports/event_file.h"
#include "worker/trainer/reports/report.h"

namespace cairn {

// One step, as in the metrics file.
struct StepStatistics {
  int64_t step = 0;  // of the job
  double loss = 0;
  int64_t examples = 0;
  double seconds = 0;  // since the first step of this start began, without evaluations
};

// The tags of a step:
//   loss                 of the step's batch, before its update
//   examples_per_second  since the previous point
//   learning_rate        of the job's optimizer at that step, if known
//   staleness/mean       of this start's pushes so far, as in the report
//   gpu/compute_ms, gpu/copy_ms, gpu/memory_bytes    if GPUs compute (gpu_usage.h): per step, the
//                        mean of the steps measured since the previous point, if any; allocated now
// Every 100 points and at the end also `staleness`, a histogram of the pushes since the previous
// histogram; and eval/auc, eval/log_loss, eval/accuracy, eval/rmse at evaluations. Every step is a
// point until there are 1000 points, then every second step for 1000 points more, every fourth, …:
// a million steps make 10,000 points of some 150 bytes. In addition the last step is a point, and
// so is the first step that ends 10 s after the previous point. Points are written to the file when
// 64 KiB are buffered, after 10 s, at evaluations and at the end. Thread safety: none.
class TrainingEvents {
 public:
  // `first_step`: the lowest step that may follow. `learning_rate`: see KnownLearningRate. Every
  // method returns the errors of EventFile.
  static absl::StatusOr<std::unique_ptr<TrainingEvents>> Open(
      const std::string& folder, int64_t first_step, std::optional<ScheduleConfig> learning_rate);

  // Call for every step. Calls `staleness` only for steps that are points.
  absl::Status StepDone(const StepStatistics& statistics, bool last,
                        absl::FunctionRef<StalenessSummary()> staleness);
  absl::Status Evaluated(int64_t step, const Evaluation& evaluation);
  absl::Status Close() { return file_->Close(); }
  const std::string& path() const { return file_->path(); }

 private:
  TrainingEvents(std::unique_ptr<EventFile> file, std::optional<ScheduleConfig> learning_rate)
      : file_(std::move(file)), learning_rate_(std::move(learning_rate)), gpu_(ReadGpuUsage()) {}
  bool Due(const StepStatistics& statistics) const;
  absl::Status AddHistogram(int64_t step, const StalenessSummary& staleness);

  const std::unique_ptr<EventFile> file_;
  const std::optional<ScheduleConfig> learning_rate_;
  int64_t stride_ = 1;  // steps between points
  int64_t points_ = 0;
  int64_t examples_ = 0;    // since the last point
  double seconds_ = 0;      // time of the last point
  double flushed_at_ = 0;   // on the same clock
  StalenessSummary shown_;  // already in histograms
  GpuUsage gpu_;            // at the last point
};

// The learning rate of job.optimizer if a worker knows it at each of its steps: a constant, or the
// schedule of a job with one worker. A schedule advances with the servers' updates, to which other
// workers add, and optimizer.not_finite: skip drops some updates.
std::optional<ScheduleConfig> KnownLearningRate(const JobConfig& job, int32_t workers);

// Each of several writers of a job has its own directory, which TensorBoard shows as a separate
// run: "logs/worker-1" for worker:1.
std::string EventFolder(const std::string& folder, const std::string& task);

}  // namespace cairn
