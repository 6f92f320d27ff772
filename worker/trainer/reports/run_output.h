// The files that record a job's steps and evaluations for its owner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker/trainer/reports/report.h"
#include "worker/trainer/reports/training_events.h"

namespace cairn {

// The metrics file and TensorBoard's event files: both, one of them, or none. Errors name the file;
// errors of opening are the user's (AsBadInput). Thread safety: none.
class RunOutput {
 public:
  // Like MetricsFile::Open.
  absl::Status OpenMetrics(const std::string& path, bool append);
  // Like TrainingEvents::Open.
  absl::Status OpenEvents(const std::string& folder, int64_t first_step,
                          std::optional<ScheduleConfig> learning_rate);

  // Call for every step; `last`: no step follows.
  absl::Status StepDone(const StepStatistics& statistics, bool last,
                        absl::FunctionRef<StalenessSummary()> staleness);
  absl::Status Evaluated(int64_t step, const Evaluation& evaluation);
  // Call after the last step, to complete the metrics file. A later evaluation is in the report and
  // in TensorBoard, but not in the metrics file.
  absl::Status CloseMetrics();
  absl::Status Close();

 private:
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<TrainingEvents> events_;
};

}  // namespace cairn
