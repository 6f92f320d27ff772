#include "worker/trainer/reports/run_output.h"

#include <utility>

#include "common/exit_status.h"
#include "common/status.h"

namespace cairn {

absl::Status RunOutput::OpenMetrics(const std::string& path, bool append) {
  ASSIGN_OR_RETURN(metrics_, AsBadInput(MetricsFile::Open(path, append)));
  return absl::OkStatus();
}

absl::Status RunOutput::OpenEvents(const std::string& folder, int64_t first_step,
                                   std::optional<ScheduleConfig> learning_rate) {
  ASSIGN_OR_RETURN(events_,
                   AsBadInput(TrainingEvents::Open(folder, first_step, std::move(learning_rate))));
  return absl::OkStatus();
}

absl::Status RunOutput::StepDone(const StepStatistics& statistics, bool last,
                                 absl::FunctionRef<StalenessSummary()> staleness) {
  if (metrics_ != nullptr) {
    RETURN_IF_ERROR(
        metrics_->Write(statistics.step, statistics.loss, statistics.examples, statistics.seconds));
  }
  if (events_ != nullptr) RETURN_IF_ERROR(events_->StepDone(statistics, last, staleness));
  return absl::OkStatus();
}

absl::Status RunOutput::Evaluated(int64_t step, const Evaluation& evaluation) {
  if (metrics_ != nullptr) RETURN_IF_ERROR(metrics_->WriteEvaluation(step, evaluation));
  if (events_ != nullptr) RETURN_IF_ERROR(events_->Evaluated(step, evaluation));
  return absl::OkStatus();
}

absl::Status RunOutput::CloseMetrics() {
  const std::unique_ptr<MetricsFile> metrics = std::move(metrics_);
  return metrics == nullptr ? absl::OkStatus() : metrics->Close();
}

absl::Status RunOutput::Close() {
  absl::Status status = CloseMetrics();
  if (events_ != nullptr) status.Update(events_->Close());
  return status;
}

}  // namespace cairn
