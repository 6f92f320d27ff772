#include "worker/monitor/worker_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string TextOf(const RunStatistics& run) {
  Families families;
  AddWorkerMetrics(run, families);
  return MetricsText(families.Take());
}

TEST(WorkerMetrics, TellWhatTheRunHasDone) {
  RunMeter meter("clicks", "worker:3");
  meter.StepDone(32, 0.5, absl::Milliseconds(2));
  meter.StepDone(16, 0.25, absl::Milliseconds(2));
  meter.ExchangeDone(absl::Milliseconds(1));
  const std::string text = TextOf(meter.Read());
  EXPECT_THAT(text, HasSubstr("cairn_worker_info{cairn_job=\"clicks\",task=\"worker:3\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_steps_total 2\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_examples_total 48\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_loss 0.25\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_step_duration_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("cairn_worker_exchange_duration_seconds_count 1\n"));
}

// The client's summary has the buckets 0, 1, 2, 4, … up to the last nonempty one.
TEST(WorkerMetrics, StalenessKeepsItsBuckets) {
  RunStatistics run;
  run.staleness = {.mean = 2.5, .histogram = {{0, 1}, {1, 0}, {2, 2}, {4, 1}}};
  EXPECT_THAT(TextOf(run), AllOf(HasSubstr("cairn_worker_staleness_updates_bucket{le=\"0\"} 1\n"),
                                 HasSubstr("cairn_worker_staleness_updates_bucket{le=\"1\"} 1\n"),
                                 HasSubstr("cairn_worker_staleness_updates_bucket{le=\"2\"} 3\n"),
                                 HasSubstr("cairn_worker_staleness_updates_bucket{le=\"4\"} 4\n"),
                                 HasSubstr("cairn_worker_staleness_updates_sum 10\n")));
}

TEST(WorkerMetrics, HaveGpusOnlyIfAGpuWasUsed) {
  RunStatistics run;
  EXPECT_THAT(TextOf(run), Not(HasSubstr("gpu")));
  run.gpu = {.steps = 32,
             .measured_steps = 2,
             .compute_seconds = 0.5,
             .copy_seconds = 0.25,
             .memory_bytes = 512,
             .memory_bytes_max = 1024};
  EXPECT_THAT(TextOf(run), AllOf(HasSubstr("cairn_worker_gpu_steps_total 32\n"),
                                 HasSubstr("cairn_worker_gpu_measured_steps_total 2\n"),
                                 HasSubstr("cairn_worker_gpu_compute_seconds_total 0.5\n"),
                                 HasSubstr("cairn_worker_gpu_copy_seconds_total 0.25\n"),
                                 HasSubstr("cairn_worker_gpu_memory_bytes 512\n")));
}

TEST(WorkerMetrics, ThereIsNoLossBeforeTheFirstStep) {
  EXPECT_THAT(TextOf(RunMeter("clicks", "worker:3").Read()), Not(HasSubstr("cairn_worker_loss")));
}

}  // namespace
}  // namespace cairn
