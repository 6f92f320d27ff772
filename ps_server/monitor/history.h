// Samples of the past minutes of one server, for charts on its status page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "ps_server/core/statistics.h"

namespace cairn {

// One sample a second for 15 minutes. A job takes about 200 bytes in each: 2 MiB with 8 jobs.
inline constexpr absl::Duration kSampleInterval = absl::Seconds(1);
inline constexpr size_t kMaxSamples = 900;
// Jobs with workers in one sample. Further jobs have no charts.
inline constexpr size_t kMaxJobsCharted = 8;

struct JobSample {
  std::string name;
  std::optional<double> loss;  // MeanLoss
  // Sums over the workers that have reported twice.
  std::optional<double> examples_per_second;
  std::optional<double> steps_per_second;
  int64_t durable_lag_pushes = 0;
};

struct Sample {
  int64_t number = 0;  // 1, 2, …
  absl::Time at;
  std::optional<double> staleness_mean;  // of the pushes since the sample before
  std::vector<JobSample> jobs;
};

// Thread safety: none.
class History {
 public:
  // `now` is on the monotonic clock, `at` on the wall clock. The first call adds no sample, because
  // rates need two.
  void Add(const EngineStatistics& engine, absl::Duration now, absl::Time at);
  // Samples above `after`, oldest first.
  std::vector<Sample> After(int64_t after) const;
  int64_t last() const { return last_; }

 private:
  struct WorkerCount {
    int64_t examples = 0;
    int64_t steps = 0;
    absl::Duration said;  // when the worker reported, on the monotonic clock
    double examples_per_second = 0;
    double steps_per_second = 0;
  };
  using Workers = std::map<std::pair<std::string, int32_t>, WorkerCount>;

  // Returns a job's sample, and adds its workers' counts to `counts` for the next sample.
  JobSample SampleOf(const JobStatistics& job, absl::Duration now, Workers& counts) const;
  static void Rate(const WorkerCount& before, WorkerCount& count);

  bool any_ = false;
  int64_t staleness_count_before_ = 0;
  double staleness_sum_before_ = 0;
  Workers workers_before_;
  int64_t last_ = 0;
  std::deque<Sample> samples_;
};

}  // namespace cairn
