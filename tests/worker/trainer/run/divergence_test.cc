// Losses that must end a run, and losses that must not.
#include "worker/trainer/run/divergence.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const JobConfig& Defaults() {
  static const auto* const kJob = new JobConfig();
  return *kJob;
}

// The first refusal in a run with `losses`, whose steps are numbered from 1.
absl::Status RunOf(const std::vector<double>& losses, const JobConfig& job = Defaults()) {
  DivergenceGuard guard(job, "worker:2");
  for (size_t i = 0; i < losses.size(); ++i) {
    const absl::Status status =
        guard.Check(static_cast<int64_t>(i) + 1, losses[i], i + 1 == losses.size());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<double> Losses(std::initializer_list<std::pair<size_t, double>> pieces) {
  std::vector<double> losses;
  for (const auto& [count, loss] : pieces) losses.insert(losses.end(), count, loss);
  return losses;
}

TEST(Divergence, ALossThatIsNotFiniteEndsTheRunAtOnce) {
  for (const double loss : {kInfinity, std::nan("")}) {
    EXPECT_THAT(RunOf({0.693, 4.5, loss, 0.5}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("worker:2: training diverged: the loss is "),
                               HasSubstr(" at step 3 (step 1: 0.693); lower "
                                         "optimizer.learning_rate"))));
  }
  EXPECT_THAT(RunOf({kInfinity}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           HasSubstr("the loss is inf at step 1; lower")));
}

TEST(Divergence, SkippedPushesEndItWhenAHundredStepsHadNoneElse) {
  JobConfig job;
  job.not_finite = "skip";
  EXPECT_OK(RunOf(Losses({{1, 0.5}, {99, kInfinity}, {1, 0.5}, {99, kInfinity}}), job));
  EXPECT_THAT(RunOf(Losses({{1, 0.5}, {100, kInfinity}}), job),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the loss is inf at step 101 and was not finite since step 2")));
}

TEST(Divergence, ALossThatExplodesEndsTheRunAfterAHundredSteps) {
  EXPECT_OK(RunOf(Losses({{1, 0.7}, {99, 2e12}, {300, 0.7}})));
  EXPECT_THAT(RunOf(Losses({{1, 0.7}, {5, 3}, {100, 2e12}, {300, 0.7}})),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the loss is 2e+12 at step 106 and above 1e+12 since step 7 "
                                 "(step 1: 0.7)")));
}

TEST(Divergence, ARunThatEndsExplodedHasDiverged) {
  EXPECT_OK(RunOf(Losses({{50, 0.7}, {9, 1e29}})));
  EXPECT_THAT(RunOf(Losses({{50, 0.7}, {10, 1e29}})),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("since step 51")));
  EXPECT_THAT(RunOf({0.7, 1e29, 1e29}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("since step 2")));
}

// Large columns and labels cause large losses from the first step on, and single such rows cause
// peaks.
TEST(Divergence, LargeNumbersInTheDataAreNone) {
  EXPECT_OK(RunOf(Losses({{500, 3e13}})));
  EXPECT_OK(RunOf(Losses({{1, 1e4}, {400, 9e9}})));
  EXPECT_OK(RunOf(Losses({{1, 1e-9}, {400, 9e11}})));
  EXPECT_OK(RunOf(Losses({{60, 1}, {1, 1e20}, {60, 1}, {1, 1e20}})));
  EXPECT_OK(RunOf({1e29}));
}

TEST(Divergence, MayBeIgnored) {
  JobConfig job;
  job.divergence = "ignore";
  EXPECT_OK(RunOf(Losses({{1, 0.7}, {200, 1e29}, {1, kInfinity}}), job));
}

}  // namespace
}  // namespace cairn
