#include "ps_server/monitor/history.h"

#include <algorithm>

#include "thrift/job_state.h"

namespace cairn {
namespace {

double PerSecond(int64_t before, int64_t now, double seconds) {
  return now < before || seconds <= 0 ? 0 : static_cast<double>(now - before) / seconds;
}

}  // namespace

// Computes rates between the worker's last two reports. Workers report a few times a second, so
// their counts at the times of the samples are not known.
void History::Rate(const WorkerCount& before, WorkerCount& count) {
  const double seconds = absl::ToDoubleSeconds(count.said - before.said);
  if (seconds < 0.01) {
    count.said = before.said;
    count.examples_per_second = before.examples_per_second;
    count.steps_per_second = before.steps_per_second;
    return;
  }
  count.examples_per_second = PerSecond(before.examples, count.examples, seconds);
  count.steps_per_second = PerSecond(before.steps, count.steps, seconds);
}

JobSample History::SampleOf(const JobStatistics& job, absl::Duration now, Workers& counts) const {
  JobSample sample{
      .name = job.name, .loss = MeanLoss(job.workers), .durable_lag_pushes = job.DurableLag()};
  for (const wire::WorkerStanding& worker : job.workers) {
    if (!worker.__isset.vitals) continue;
    const wire::WorkerVitals& vitals = worker.vitals;
    const std::pair<std::string, int32_t> key(job.name, worker.worker);
    WorkerCount count{.examples = vitals.examples,
                      .steps = vitals.__isset.steps ? vitals.steps : worker.step,
                      .said = now - absl::Seconds(worker.seconds_since_vitals)};
    const auto before = workers_before_.find(key);
    if (before != workers_before_.end()) Rate(before->second, count);
    if (IsHeard(worker) && before != workers_before_.end()) {
      sample.examples_per_second =
          sample.examples_per_second.value_or(0) + count.examples_per_second;
      sample.steps_per_second = sample.steps_per_second.value_or(0) + count.steps_per_second;
    }
    counts[key] = count;
  }
  return sample;
}

void History::Add(const EngineStatistics& engine, absl::Duration now, absl::Time at) {
  Sample sample{.at = at};
  if (const int64_t pushes = engine.staleness.count - staleness_count_before_; pushes > 0) {
    sample.staleness_mean =
        (engine.staleness.sum - staleness_sum_before_) / static_cast<double>(pushes);
  }
  Workers counts;
  for (const JobStatistics& job : engine.jobs) {
    const bool charted = std::ranges::any_of(job.workers, IsExpectedToCall);
    if (!charted || sample.jobs.size() >= kMaxJobsCharted) continue;
    sample.jobs.push_back(SampleOf(job, now, counts));
  }
  workers_before_ = std::move(counts);
  staleness_count_before_ = engine.staleness.count;
  staleness_sum_before_ = engine.staleness.sum;
  if (!std::exchange(any_, true)) return;
  sample.number = ++last_;
  samples_.push_back(std::move(sample));
  if (samples_.size() > kMaxSamples) samples_.pop_front();
}

std::vector<Sample> History::After(int64_t after) const {
  const auto first =
      std::ranges::find_if(samples_, [&](const Sample& sample) { return sample.number > after; });
  return {first, samples_.end()};
}

}  // namespace cairn
