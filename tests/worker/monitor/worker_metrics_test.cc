#include "worker/monitor/worker_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(WorkerMetrics, TellWhatTheRunHasDone) {
  RunMeter meter;
  meter.Begin("clicks", "worker:3");
  meter.StepDone(32, 0.5, absl::Milliseconds(2));
  meter.StepDone(16, 0.25, absl::Milliseconds(2));
  meter.ExchangeDone(absl::Milliseconds(1));
  Families families;
  AddWorkerMetrics(meter.Read(), families);
  const std::string text = MetricsText(families.Take());
  EXPECT_THAT(text, HasSubstr("cairn_worker_info{cairn_job=\"clicks\",task=\"worker:3\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_steps_total 2\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_examples_total 48\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_loss 0.25\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_step_duration_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_exchange_duration_seconds_count 1\n"));
}

// The client's summary has the buckets 0, 1, 2, 4, … up to the last that is not empty.
TEST(WorkerMetrics, StalenessKeepsItsBuckets) {
  RunFigures run;
  run.staleness = {.mean = 2.5, .histogram = {{0, 1}, {1, 0}, {2, 2}, {4, 1}}};
  Families families;
  AddWorkerMetrics(run, families);
  const std::string text = MetricsText(families.Take());
  EXPECT_THAT(text, HasSubstr("cairn_worker_staleness_updates_bucket{le=\"0\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_staleness_updates_bucket{le=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_staleness_updates_bucket{le=\"2\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_staleness_updates_bucket{le=\"4\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_staleness_updates_sum 10\n"));
}

TEST(WorkerMetrics, ThereIsNoLossBeforeTheFirstStep) {
  Families families;
  AddWorkerMetrics(RunMeter().Read(), families);
  EXPECT_THAT(MetricsText(families.Take()), Not(HasSubstr("cairn_worker_loss")));
}

}  // namespace
}  // namespace cairn
