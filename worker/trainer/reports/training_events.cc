#include "worker/trainer/reports/training_events.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/optimizer/optimizer.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr int64_t kPointsPerStride = 1000;
constexpr int64_t kPointsPerHistogram = 100;
constexpr double kQuietSeconds = 10;

double WallSeconds() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

int64_t PushesOf(const StalenessSummary& staleness) {
  int64_t pushes = 0;
  for (const StalenessSummary::Bucket& bucket : staleness.histogram) pushes += bucket.pushes;
  return pushes;
}

double SumOf(const StalenessSummary& staleness) {
  return staleness.mean * static_cast<double>(PushesOf(staleness));
}

// The pushes counted in `all` but not in `before`, an earlier state of it. `min` and `max` are
// bounds, since only buckets are known.
EventHistogram Between(const StalenessSummary& before, const StalenessSummary& all) {
  EventHistogram histogram{.tag = "staleness", .sum = SumOf(all) - SumOf(before)};
  bool found = false;
  for (size_t i = 0; i < all.histogram.size(); ++i) {
    const int64_t old = i < before.histogram.size() ? before.histogram[i].pushes : 0;
    const int64_t pushes = all.histogram[i].pushes - old;
    const auto up_to = static_cast<double>(all.histogram[i].up_to);
    histogram.limits.push_back(up_to);
    histogram.counts.push_back(static_cast<double>(pushes));
    if (pushes == 0) continue;
    if (!found && i > 0) histogram.min = static_cast<double>(all.histogram[i - 1].up_to + 1);
    found = true;
    histogram.max = std::min(up_to, static_cast<double>(all.max));
  }
  return histogram;
}

// Adds the use of GPUs at a point. `before`: the use at the previous point.
void AddGpu(const GpuUsage& before, const GpuUsage& now, Event* event) {
  if (!now.used()) return;
  const auto add = [event](absl::string_view tag, double value) {
    event->scalars.push_back({tag, static_cast<float>(value)});
  };
  const GpuUsage since = now.Since(before);
  if (since.measured_steps > 0) {
    add("gpu/compute_ms", since.compute_ms_per_step());
    add("gpu/copy_ms", since.copy_ms_per_step());
  }
  add("gpu/memory_bytes", static_cast<double>(now.memory_bytes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingEvents>> TrainingEvents::Open(
    const std::string& folder, int64_t first_step, std::optional<ScheduleConfig> learning_rate) {
  ASSIGN_OR_RETURN(std::unique_ptr<EventFile> file,
                   EventFile::Create(folder, absl::Now(), first_step));
  return std::unique_ptr<TrainingEvents>(
      new TrainingEvents(std::move(file), std::move(learning_rate)));
}

bool TrainingEvents::Due(const StepStatistics& statistics) const {
  return statistics.step % stride_ == 0 || statistics.seconds - seconds_ >= kQuietSeconds;
}

absl::Status TrainingEvents::StepDone(const StepStatistics& statistics, bool last,
                                      absl::FunctionRef<StalenessSummary()> staleness) {
  examples_ += statistics.examples;
  if (!last && !Due(statistics)) return absl::OkStatus();
  const StalenessSummary seen = staleness();
  Event event{.wall_seconds = WallSeconds(), .step = statistics.step};
  event.scalars.push_back({"loss", static_cast<float>(statistics.loss)});
  const double took = statistics.seconds - seconds_;
  if (took > 0) {
    const double rate = static_cast<double>(examples_) / took;
    event.scalars.push_back({"examples_per_second", static_cast<float>(rate)});
  }
  if (learning_rate_.has_value()) {
    const double rate = LearningRateAt(*learning_rate_, statistics.step - 1);
    event.scalars.push_back({"learning_rate", static_cast<float>(rate)});
  }
  event.scalars.push_back({"staleness/mean", static_cast<float>(seen.mean)});
  const GpuUsage gpu = ReadGpuUsage();
  AddGpu(std::exchange(gpu_, gpu), gpu, &event);
  RETURN_IF_ERROR(file_->Add(event));
  examples_ = 0;
  seconds_ = statistics.seconds;
  ++points_;
  if (points_ % kPointsPerStride == 0) stride_ *= 2;
  if (last || points_ % kPointsPerHistogram == 0) {
    RETURN_IF_ERROR(AddHistogram(statistics.step, seen));
  }
  if (!last && statistics.seconds - flushed_at_ < kQuietSeconds) return absl::OkStatus();
  flushed_at_ = statistics.seconds;
  return file_->Flush();
}

absl::Status TrainingEvents::AddHistogram(int64_t step, const StalenessSummary& staleness) {
  if (PushesOf(staleness) == PushesOf(shown_)) return absl::OkStatus();
  Event event{.wall_seconds = WallSeconds(), .step = step};
  event.histogram = Between(shown_, staleness);
  shown_ = staleness;
  return file_->Add(event);
}

absl::Status TrainingEvents::Evaluated(int64_t step, const Evaluation& evaluation) {
  Event event{.wall_seconds = WallSeconds(), .step = step};
  const auto add = [&](absl::string_view tag, const std::optional<double>& value) {
    if (value.has_value()) event.scalars.push_back({tag, static_cast<float>(*value)});
  };
  add("eval/auc", evaluation.auc);
  add("eval/log_loss", evaluation.log_loss);
  add("eval/accuracy", evaluation.accuracy);
  add("eval/rmse", evaluation.rmse);
  RETURN_IF_ERROR(file_->Add(event));
  return file_->Flush();
}

std::optional<ScheduleConfig> KnownLearningRate(const JobConfig& job, int32_t workers) {
  ScheduleConfig rate = WithDefaults(job.optimizer).learning_rate;
  const bool steps_are_updates = workers == 1 && job.not_finite != "skip";
  if (rate.type != "constant" && !steps_are_updates) return std::nullopt;
  return rate;
}

std::string EventFolder(const std::string& folder, const std::string& task) {
  return absl::StrCat(folder, "/", absl::StrReplaceAll(task, {{":", "-"}}));
}

}  // namespace cairn
