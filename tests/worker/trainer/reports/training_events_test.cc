// Which steps of a run become points, and their contents.
#include "worker/trainer/reports/training_events.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/input/dataset/record_file.h"
#include "worker/ops/gpu_usage.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kHead = 2;  // records before the first point

class TrainingEventsTest : public ::testing::Test {
 protected:
  void Open(std::optional<ScheduleConfig> rate = std::nullopt) {
    auto opened = TrainingEvents::Open(folder_.path(), 1, std::move(rate));
    ASSERT_OK(opened);
    events_ = *std::move(opened);
  }

  // True: the step became a point.
  bool Step(int64_t step, double seconds, bool last = false) {
    bool asked = false;
    EXPECT_OK(
        events_->StepDone({.step = step, .loss = 1, .examples = 8, .seconds = seconds}, last, [&] {
          asked = true;
          return staleness_;
        }));
    return asked;
  }

  std::vector<std::string> Records() const {
    std::vector<std::string> records;
    auto file = RecordFile::Open(events_->path(), Compression::kNone);
    std::string record;
    while (file.ok() && *ReadTFRecord(file->get(), &record)) records.push_back(record);
    return records;
  }

  TempDir folder_;
  StalenessSummary staleness_;
  std::unique_ptr<TrainingEvents> events_;
};

TEST_F(TrainingEventsTest, PointsThinOutAsStepsGrowMany) {
  Open();
  int64_t points = 0;
  for (int64_t step = 1; step <= 1000; ++step) points += Step(step, 0) ? 1 : 0;
  EXPECT_EQ(points, 1000);
  for (int64_t step = 1001; step <= 1000000; ++step) points += Step(step, 0) ? 1 : 0;
  EXPECT_GT(points, 9000);
  EXPECT_LT(points, 11000);
}

TEST_F(TrainingEventsTest, AQuietTimeAndTheLastStepMakePointsOfTheirOwn) {
  Open();
  for (int64_t step = 1; step <= 1000; ++step) Step(step, 1);
  EXPECT_FALSE(Step(1001, 10.9));
  EXPECT_TRUE(Step(1003, 11));
  EXPECT_FALSE(Step(1005, 12));
  EXPECT_TRUE(Step(1007, 12, /*last=*/true));
}

// Of the steps measured since the previous point; without any, only the memory.
TEST_F(TrainingEventsTest, PointsHaveTheUseOfGpusOnlyIfThereIsAny) {
  Open();
  Step(1, 20);
  CountGpuMemory(4096);
  CountGpuStep(/*measured=*/true, 0.25, 0.125);
  Step(2, 40);
  CountGpuStep(/*measured=*/false, 0, 0);
  Step(3, 60, /*last=*/true);
  CountGpuMemory(-4096);
  const std::vector<std::string> records = Records();
  ASSERT_EQ(records.size(), kHead + 3);
  EXPECT_THAT(records[kHead], Not(HasSubstr("gpu")));
  EXPECT_THAT(records[kHead + 1], AllOf(HasSubstr("gpu/compute_ms"), HasSubstr("gpu/copy_ms"),
                                        HasSubstr("gpu/memory_bytes")));
  EXPECT_THAT(records[kHead + 2],
              AllOf(Not(HasSubstr("gpu/compute_ms")), HasSubstr("gpu/memory_bytes")));
}

TEST_F(TrainingEventsTest, PointsReachTheFileAfterTenSecondsAtEvaluationsAndAtTheEnd) {
  Open();
  Step(1, 1);
  EXPECT_EQ(Records().size(), kHead);
  Step(2, 10);
  EXPECT_EQ(Records().size(), kHead + 2);
  Step(3, 11);
  ASSERT_OK(events_->Evaluated(3, {.rows = 5, .auc = 0.5}));
  ASSERT_EQ(Records().size(), kHead + 4);
  EXPECT_THAT(Records().back(), HasSubstr("eval/auc"));
  EXPECT_THAT(Records().back(), Not(HasSubstr("rmse")));
  Step(4, 12, /*last=*/true);
  EXPECT_EQ(Records().size(), kHead + 5);
}

TEST_F(TrainingEventsTest, AScheduleIsWrittenAsItWasBeforeTheStepsUpdate) {
  ScheduleConfig rate{.type = "piecewise_constant_decay"};
  rate.boundaries = {1};
  rate.values = {0.5, 0.25};
  Open(rate);
  const auto expected = [](float value) {
    Event event;
    event.scalars = {{"learning_rate", value}};
    return EncodeEvent(event).substr(11);  // after wall_time, the summary's key and size
  };
  for (int64_t step = 1; step <= 3; ++step) Step(step, 0, /*last=*/true);
  const std::vector<std::string> records = Records();
  ASSERT_EQ(records.size(), kHead + 3);
  EXPECT_THAT(records[kHead + 1], HasSubstr(expected(0.5F)));  // boundaries belong to the bucket on
                                                               // their left
  EXPECT_THAT(records[kHead + 2], HasSubstr(expected(0.25F)));
}

TEST_F(TrainingEventsTest, AHistogramHasThePushesSinceTheOneBefore) {
  Open();
  staleness_ = {.mean = 0.5, .p99 = 1, .max = 1, .histogram = {{0, 2}, {1, 2}}};
  Step(1, 0, /*last=*/true);
  staleness_ = {.mean = 2, .p99 = 3, .max = 3, .histogram = {{0, 2}, {1, 2}, {2, 0}, {4, 6}}};
  Step(2, 0, /*last=*/true);
  Step(3, 0, /*last=*/true);  // no pushes: no histogram
  const auto expected = [](const EventHistogram& histogram) {
    Event event;
    event.histogram = histogram;
    return EncodeEvent(event).substr(9);  // after wall_time
  };
  const std::vector<std::string> records = Records();
  ASSERT_EQ(records.size(), kHead + 5);
  EXPECT_THAT(
      records[kHead + 1],
      HasSubstr(expected(
          {.tag = "staleness", .min = 0, .max = 1, .sum = 2, .limits = {0, 1}, .counts = {2, 2}})));
  EXPECT_THAT(records[kHead + 3], HasSubstr(expected({.tag = "staleness",
                                                      .min = 3,
                                                      .max = 3,
                                                      .sum = 18,
                                                      .limits = {0, 1, 2, 4},
                                                      .counts = {0, 0, 0, 6}})));
}

TEST(KnownLearningRate, IsAConstantOrTheScheduleOfOneWorkerAlone) {
  JobConfig job;
  job.optimizer.learning_rate = ConstantRate(0.5);
  EXPECT_EQ(KnownLearningRate(job, 4), ConstantRate(0.5));
  job.optimizer.learning_rate.type = "piecewise_constant_decay";
  EXPECT_TRUE(KnownLearningRate(job, 1).has_value());
  EXPECT_FALSE(KnownLearningRate(job, 2).has_value());
  job.not_finite = "skip";
  EXPECT_FALSE(KnownLearningRate(job, 1).has_value());
}

TEST(EventFolder, IsATasksOwn) { EXPECT_EQ(EventFolder("logs", "worker:1"), "logs/worker-1"); }

}  // namespace
}  // namespace cairn
