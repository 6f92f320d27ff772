#include "ps_server/monitor/history.h"

#include <algorithm>

#include "ps_server/monitor/standing.h"

namespace cairn {
namespace {

double PerSecond(int64_t before, int64_t now, double seconds) {
  return now < before || seconds <= 0 ? 0 : static_cast<double>(now - before) / seconds;
}

int64_t Count(const std::map<std::string, int64_t>& counters, const char* name) {
  const auto found = counters.find(name);
  return found == counters.end() ? 0 : found->second;
}

}  // namespace

// Between the two times at which the worker spoke: it does so a few times a second, so that its
// counts at the times of the samples are not known well.
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

JobSample History::SampleOf(const JobFigures& job, absl::Duration now, Workers& counts) const {
  JobSample sample{.name = job.name, .durable_lag_pushes = job.DurableLag()};
  double loss_sum = 0;
  int64_t loss_count = 0;
  for (const wire::WorkerStanding& worker : job.why.workers) {
    if (!worker.__isset.vitals) continue;
    const wire::WorkerVitals& vitals = worker.vitals;
    const std::pair<std::string, int32_t> key(job.name, worker.worker);
    WorkerCount count{.examples = vitals.examples,
                      .steps = vitals.__isset.steps ? vitals.steps : worker.step,
                      .said = now - absl::Seconds(worker.seconds_since_vitals)};
    const auto before = workers_before_.find(key);
    if (before != workers_before_.end()) Rate(before->second, count);
    const bool heard = IsExpectedToCall(worker) && !IsMissing(worker);
    if (heard && before != workers_before_.end()) {
      sample.examples_per_second =
          sample.examples_per_second.value_or(0) + count.examples_per_second;
      sample.steps_per_second = sample.steps_per_second.value_or(0) + count.steps_per_second;
    }
    if (heard && vitals.__isset.loss) {
      loss_sum += vitals.loss;
      ++loss_count;
    }
    counts[key] = count;
  }
  if (loss_count > 0) sample.loss = loss_sum / static_cast<double>(loss_count);
  return sample;
}

void History::Add(const EngineFigures& engine, const ListenerFigures& listener, absl::Duration now,
                  absl::Time at) {
  const double seconds = absl::ToDoubleSeconds(now - before_);
  Sample sample{.at = at,
                .epoch_age_seconds = engine.seconds_since_epoch >= 0 ? engine.seconds_since_epoch
                                                                     : engine.uptime_seconds,
                .memory_used_bytes = engine.memory_used_bytes};
  const auto rate = [&](const char* name) {
    return PerSecond(Count(counters_before_, name), Count(engine.counters, name), seconds);
  };
  sample.pushes_per_second = rate("pushes");
  sample.pulls_per_second = rate("pulls");
  sample.received_bytes_per_second =
      PerSecond(listener_before_.received_bytes, listener.received_bytes, seconds);
  sample.sent_bytes_per_second =
      PerSecond(listener_before_.sent_bytes, listener.sent_bytes, seconds);
  if (const int64_t pushes = engine.staleness.count - staleness_count_before_; pushes > 0) {
    sample.staleness_mean =
        (engine.staleness.sum - staleness_sum_before_) / static_cast<double>(pushes);
  }
  Workers counts;
  for (const JobFigures& job : engine.jobs) {
    const bool charted =
        std::any_of(job.why.workers.begin(), job.why.workers.end(), IsExpectedToCall);
    if (!charted || sample.jobs.size() >= kMostJobsCharted) continue;
    sample.jobs.push_back(SampleOf(job, now, counts));
  }
  workers_before_ = std::move(counts);
  counters_before_ = engine.counters;
  listener_before_ = listener;
  staleness_count_before_ = engine.staleness.count;
  staleness_sum_before_ = engine.staleness.sum;
  before_ = now;
  if (!std::exchange(any_, true)) return;
  sample.number = ++last_;
  samples_.push_back(std::move(sample));
  if (samples_.size() > kMostSamples) samples_.pop_front();
}

std::vector<Sample> History::After(int64_t after) const {
  const auto first = std::find_if(samples_.begin(), samples_.end(),
                                  [&](const Sample& sample) { return sample.number > after; });
  return {first, samples_.end()};
}

}  // namespace cairn
