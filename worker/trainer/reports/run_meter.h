// The state of a training run, for heartbeats and metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics/slotted.h"
#include "worker/client/ps_client.h"
#include "worker/ops/gpu_usage.h"
#include "worker/trainer/reports/progress.h"

namespace cairn {

struct RunStatistics {
  std::string job;
  std::string task;
  TrainingVitals training;  // loss: the mean over the last 100 steps
  Histogram::Reading step_seconds;
  Histogram::Reading exchange_seconds;
  ClientCounters counters;
  StalenessSummary staleness;
  GpuUsage gpu;  // of the process
};

// Thread safety: every method may be called from several threads at once.
class RunMeter {
 public:
  RunMeter(std::string job, std::string task) : job_(std::move(job)), task_(std::move(task)) {}

  void StepDone(int64_t rows, std::optional<double> loss, absl::Duration took,
                const std::optional<Progress>& progress = std::nullopt);
  // The duration of a round trip to the servers, which pushes one step and pulls the next.
  void ExchangeDone(absl::Duration took) { exchange_seconds_.Observe(absl::ToDoubleSeconds(took)); }

  // While in scope, the statistics follow `client`'s counters; afterwards they keep the last
  // values.
  class Watching {
   public:
    // A null meter records nothing.
    Watching(RunMeter* meter, const PsClient* client);
    ~Watching();
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;

   private:
    RunMeter* const meter_;
  };

  TrainingVitals vitals() const;
  RunStatistics Read() const;

 private:
  void TakeCounts() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string job_;
  const std::string task_;
  Histogram step_seconds_{kCallSecondsBounds};
  Histogram exchange_seconds_{kCallSecondsBounds};
  mutable absl::Mutex mutex_;
  TrainingVitals training_ ABSL_GUARDED_BY(mutex_);
  const PsClient* client_ ABSL_GUARDED_BY(mutex_) = nullptr;
  mutable ClientCounters counters_ ABSL_GUARDED_BY(mutex_);
  mutable StalenessSummary staleness_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
