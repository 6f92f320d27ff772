#include "ps_server/monitor/history.h"
#include "ps_server/core/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "thrift/number_limits.h"

namespace cairn {
namespace {

using testing::DoubleNear;
using testing::Optional;

wire::WorkerStanding Worker(int64_t examples, double loss, double seconds_since_vitals) {
  wire::WorkerStanding worker;
  worker.state = "live";
  worker.vitals.__set_examples(examples);
  worker.vitals.__set_steps(examples / 10);
  worker.vitals.__set_loss(loss);
  worker.__isset.vitals = true;
  worker.seconds_since_vitals = seconds_since_vitals;
  worker.applied = examples;
  worker.durable = examples - 7;
  return worker;
}

class HistoryTest : public testing::Test {
 protected:
  // A second later than the one before.
  void Add(const wire::WorkerStanding& worker) {
    EngineStatistics engine;
    JobStatistics job{.name = "clicks"};
    job.workers = {worker};
    engine.jobs.push_back(job);
    now_ += absl::Seconds(1);
    history_.Add(engine, now_, absl::UnixEpoch() + now_);
  }

  History history_;
  absl::Duration now_;
};

TEST(JobStatistics, TheLagOfTheHighestSequencesDoesNotOverflow) {
  JobStatistics job{.name = "clicks"};
  job.workers.resize(4);
  for (wire::WorkerStanding& worker : job.workers) worker.applied = kMaxStep;
  EXPECT_EQ(job.DurableLag(), std::numeric_limits<int64_t>::max());
}

TEST_F(HistoryTest, RatesAreThoseBetweenTwoSamples) {
  Add(Worker(0, 0.5, 0));
  EXPECT_EQ(history_.last(), 0);  // one gives no rate
  Add(Worker(1000, 0.4, 0));
  ASSERT_EQ(history_.last(), 1);
  const Sample sample = history_.After(0).front();
  ASSERT_EQ(sample.jobs.size(), 1U);
  EXPECT_EQ(sample.jobs[0].loss, 0.4);
  EXPECT_THAT(sample.jobs[0].examples_per_second, Optional(DoubleNear(1000, 1e-6)));
  EXPECT_THAT(sample.jobs[0].steps_per_second, Optional(DoubleNear(100, 1e-6)));
  EXPECT_EQ(sample.jobs[0].durable_lag_pushes, 7);
}

// It speaks every 0.4 s: what it had done by then is not what it has done by the sample.
TEST_F(HistoryTest, AWorkersRateIsTakenBetweenTheTimesAtWhichItSpoke) {
  Add(Worker(600, 1, 0.4));
  Add(Worker(1600 + 400, 1, 0));
  EXPECT_THAT(history_.After(0).front().jobs[0].examples_per_second,
              Optional(DoubleNear(1000, 1e-6)));
}

TEST_F(HistoryTest, AWorkerThatWasStartedAgainDoesNotCountBackwards) {
  Add(Worker(5000, 1, 0));
  Add(Worker(10, 1, 0));
  EXPECT_THAT(history_.After(0).front().jobs[0].examples_per_second, Optional(0.0));
}

TEST_F(HistoryTest, ItIsBoundedAndGivesWhatCameAfterANumber) {
  for (size_t i = 0; i < kMaxSamples + 51; ++i) Add(Worker(0, 1, 0));
  const int64_t last = history_.last();
  EXPECT_EQ(last, static_cast<int64_t>(kMaxSamples) + 50);
  EXPECT_EQ(history_.After(0).size(), kMaxSamples);
  EXPECT_EQ(history_.After(0).front().number, 51);
  EXPECT_EQ(history_.After(last - 2).size(), 2U);
  EXPECT_TRUE(history_.After(last).empty());
}

}  // namespace
}  // namespace cairn
