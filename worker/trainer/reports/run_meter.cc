#include "worker/trainer/reports/run_meter.h"

namespace cairn {

void RunMeter::StepDone(int64_t rows, std::optional<double> loss, absl::Duration took,
                        const std::optional<Progress>& progress) {
  absl::MutexLock lock(&mutex_);
  step_seconds_.Observe(absl::ToDoubleSeconds(took));
  ++training_.steps;
  training_.examples += rows;
  training_.loss = loss;
  if (!progress.has_value()) return;
  training_.share_done = progress->share;
  if (progress->left.has_value()) training_.seconds_left = absl::ToDoubleSeconds(*progress->left);
}

RunMeter::Watching::Watching(RunMeter* meter, const PsClient* client) : meter_(meter) {
  if (meter_ == nullptr) return;
  absl::MutexLock lock(&meter_->mutex_);
  meter_->client_ = client;
}

RunMeter::Watching::~Watching() {
  if (meter_ == nullptr) return;
  absl::MutexLock lock(&meter_->mutex_);
  meter_->TakeCounts();
  meter_->client_ = nullptr;
}

void RunMeter::TakeCounts() const {
  if (client_ == nullptr) return;
  counters_ = client_->counters();
  staleness_ = client_->staleness();
}

TrainingVitals RunMeter::vitals() const {
  absl::MutexLock lock(&mutex_);
  return training_;
}

RunStatistics RunMeter::Read() const {
  absl::MutexLock lock(&mutex_);
  TakeCounts();
  return {.job = job_,
          .task = task_,
          .training = training_,
          .step_seconds = step_seconds_.Read(),
          .exchange_seconds = exchange_seconds_.Read(),
          .counters = counters_,
          .staleness = staleness_,
          .gpu = ReadGpuUsage()};
}

}  // namespace cairn
