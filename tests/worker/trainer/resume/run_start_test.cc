// Positions survive their text form, and every state on the servers leads to the right run.
#include "worker/trainer/resume/run_start.h"

#include <limits>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace cairn::test {
namespace {

using ::testing::HasSubstr;

JobConfig Job() {
  JobConfig job;
  job.name = "j";
  job.data.format = "libsvm";
  job.data.train = {{"/data/a.libsvm", ""}};
  job.data.epochs = 3;
  return job;
}

// The position after `steps` steps of a worker in a job with two workers.
std::string Position(bool finished, int64_t run, int64_t first_epoch, int64_t epoch, int64_t row,
                     int64_t steps) {
  RunPosition position;
  position.run = run;
  position.finished = finished;
  position.first_epoch = first_epoch;
  position.epoch = epoch;
  position.row = row;
  position.run_steps = position.total_steps = steps;
  position.data_digest = DataDigest(Job(), 0, 2);
  std::string text;
  position.EncodeTo(&text);
  return text;
}

RunStart Decide(const std::string& stored, std::vector<RosterRow> roster, bool more = false,
                const JobConfig& job = Job()) {
  const absl::StatusOr<RunStart> start = DecideRunStart(job, stored, 0, roster, more);
  EXPECT_OK(start);
  return start.value_or(RunStart());
}

TEST(RunPosition, SurvivesItsText) {
  RunPosition position;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  position = {kMost, true, kMost, kMost, kMost, kMost, kMost, ~uint64_t{0}};
  std::string text;
  position.EncodeTo(&text);
  EXPECT_LE(text.size(), 256u);
  const absl::StatusOr<RunPosition> decoded = RunPosition::Decode(text);
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, position);
}

TEST(RunPosition, TheStartOfWorkersThatTrainAsOneSurvivesToo) {
  RunPosition position;
  position.start = std::numeric_limits<int64_t>::max();
  position.finished = position.at_max_steps = true;
  std::string text;
  position.EncodeTo(&text);
  const absl::StatusOr<RunPosition> decoded = RunPosition::Decode(text);
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, position);
}

TEST(RunPosition, ForeignTextIsRefused) {
  for (const char* text : {"", "x", "cairn-run-1", "cairn-run-2 1 0 0 0 0 0 0 0",
                           "cairn-run-1 1 0 0 0 0 0 0", "cairn-run-1 1 0 0 0 0 0 0 0 0",
                           "cairn-run-1 1 0 2 1 0 0 0 0", "cairn-run-1 1 0 0 0 0 0 0 0 7",
                           "cairn-run-2 1 0 0 0 0 0 0 0 0", "cairn-run-2 1 0 0 0 0 0 0 0 x",
                           "cairn-run-1 1 0 0 0 -1 0 0 0", "cairn-run-1 a 0 0 0 0 0 0 0"}) {
    EXPECT_THAT(RunPosition::Decode(text),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("--fresh")))
        << text;
  }
}

TEST(RunStart, NothingStoredStartsTheFirstRun) {
  const RunStart start = Decide("", {{0, 0}, {0, 0}});
  EXPECT_EQ(start.position.run, 1);
  EXPECT_EQ(start.position.epoch, 0);
  EXPECT_EQ(start.end_epoch, 3);
  EXPECT_FALSE(start.nothing_to_do);
  EXPECT_THAT(start.log_line, HasSubstr("starts run 1: 3 epochs"));
}

// Whichever worker continues, in whichever run: a worker's state stays newer than the state it was
// derived from.
TEST(RunStart, TheStartOfWorkersThatTrainAsOneIsKept) {
  for (const bool finished : {false, true}) {
    RunPosition position;
    position.finished = finished;
    position.start = 77;
    std::string text;
    position.EncodeTo(&text);
    EXPECT_EQ(Decide(text, {{1, 5}, {1, 5}}).position.start, 77);
  }
}

TEST(RunStart, AnUnfinishedRunGoesOnAtItsPosition) {
  const RunStart start = Decide(Position(false, 2, 3, 4, 640, 77), {{1, 5}, {1, 5}});
  EXPECT_EQ(start.position.run, 2);
  EXPECT_EQ(start.position.epoch, 4);
  EXPECT_EQ(start.position.row, 640);
  EXPECT_EQ(start.position.run_steps, 77);
  EXPECT_EQ(start.end_epoch, 6);
  EXPECT_THAT(start.log_line, HasSubstr("continues run 2 after step 77, in epoch 5 of 6"));
}

TEST(RunStart, AFinishedJobHasNothingToDo) {
  const RunStart start = Decide(Position(true, 1, 0, 2, 900, 30), {{1, 5}, {1, 9}});
  EXPECT_TRUE(start.nothing_to_do);
  EXPECT_EQ(start.position.run, 1);
  EXPECT_EQ(start.position.total_steps, 30);
  EXPECT_THAT(start.log_line,
              HasSubstr("has finished after 30 steps, in epoch 3: nothing to train; "
                        "for more raise data.epochs or data.max_steps"));
}

TEST(RunStart, AskedForMoreAFinishedRunIsFollowedByTheNext) {
  const RunStart start = Decide(Position(true, 1, 0, 2, 900, 30), {{1, 5}, {1, 9}}, /*more=*/true);
  EXPECT_EQ(start.position.run, 2);
  EXPECT_EQ(start.position.first_epoch, 3);
  EXPECT_EQ(start.position.row, 0);
  EXPECT_EQ(start.end_epoch, 6);
  EXPECT_EQ(start.position.run_steps, 0);
  EXPECT_EQ(start.position.total_steps, 30);
  EXPECT_THAT(start.log_line, HasSubstr("--continue: trains 3 epochs more"));
}

TEST(RunStart, LargerTotalsGoOnWhereTheRunEnded) {
  JobConfig job = Job();
  job.data.epochs = 5;
  const RunStart start = Decide(Position(true, 1, 0, 2, 900, 30), {{1, 5}, {1, 9}}, false, job);
  EXPECT_FALSE(start.nothing_to_do);
  EXPECT_EQ(start.position.run, 2);
  EXPECT_EQ(start.position.first_epoch, 0);
  EXPECT_EQ(start.position.epoch, 2);
  EXPECT_EQ(start.position.row, 900);
  EXPECT_EQ(start.end_epoch, 5);
  EXPECT_EQ(start.position.run_steps, 30);
  EXPECT_THAT(start.log_line, HasSubstr("continues to 5 epochs in all"));
}

// data.max_steps counts all steps of the job, so a start after the last step has nothing to train.
TEST(RunStart, MaxStepsIsATotal) {
  JobConfig job = Job();
  job.data.max_steps = 30;
  RunPosition position = *RunPosition::Decode(Position(true, 1, 0, 1, 900, 30));
  position.at_max_steps = true;
  std::string stored;
  position.EncodeTo(&stored);
  EXPECT_TRUE(Decide(stored, {{1, 5}, {1, 9}}, false, job).nothing_to_do);
  job.data.max_steps = 40;
  const RunStart more = Decide(stored, {{1, 5}, {1, 9}}, false, job);
  EXPECT_FALSE(more.nothing_to_do);
  EXPECT_EQ(more.position.epoch, 1);
  EXPECT_EQ(more.position.row, 900);
  EXPECT_EQ(more.position.run_steps, 30);
  // In the middle of the last epoch, without the limit.
  EXPECT_FALSE(Decide(stored, {{1, 5}, {1, 9}}).nothing_to_do);
}

TEST(RunStart, AChangedInputStartsTheEpochAgain) {
  JobConfig job = Job();
  job.data.shuffle_buffer_rows = 100;
  const std::vector<RosterRow> roster(2);
  const auto start = DecideRunStart(job, Position(false, 1, 0, 1, 640, 77), 0, roster, false);
  ASSERT_OK(start);
  EXPECT_EQ(start->position.epoch, 1);
  EXPECT_EQ(start->position.row, 0);
  EXPECT_THAT(start->log_line, HasSubstr("have changed since"));
  const std::vector<RosterRow> three(3);
  EXPECT_EQ(DecideRunStart(Job(), Position(false, 1, 0, 1, 640, 77), 0, three, false)->position.row,
            0);
}

TEST(RunStart, ALateWorkerJoinsTheRunThatOthersHaveFinished) {
  EXPECT_EQ(Decide("", {{0, 0}, {1, 9}}).position.run, 1);
  EXPECT_EQ(Decide(Position(true, 1, 0, 2, 9, 30), {{1, 5}, {2, 9}}, true).position.run, 2);
}

TEST(RunStart, AWorkerThatHasFinishedLeavesTheRunToTheOthers) {
  EXPECT_TRUE(Decide(Position(true, 1, 0, 2, 9, 30), {{1, 5}, {0, 9}}, true).nothing_to_do);
  // A worker that was never seen is new to the job and no reason to wait.
  EXPECT_FALSE(Decide(Position(true, 1, 0, 2, 9, 30), {{1, 5}, {0, 0}}, true).nothing_to_do);
}

}  // namespace
}  // namespace cairn::test
