// Schedules refuse incomplete or senseless arguments by name, and restart exactly where they
// should.
#include "common/optimizer/schedule.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ScheduleConfig ScheduleOf(const std::string& type, absl::btree_map<std::string, double> arguments) {
  ScheduleConfig config;
  config.type = type;
  config.arguments = std::move(arguments);
  return config;
}

TEST(Schedule, ConstantIsConstant) {
  const ScheduleConfig config = ConstantRate(0.25);
  EXPECT_OK(ValidateSchedule(config));
  EXPECT_EQ(LearningRateAt(config, 0), 0.25);
  EXPECT_EQ(LearningRateAt(config, 1000000), 0.25);
}

TEST(Schedule, UnknownTypeNamesTheNearest) {
  EXPECT_THAT(
      ValidateSchedule(ScheduleOf("exponential_decy", {})),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("did you mean 'exponential_decay'?")));
}

TEST(Schedule, MissingAndUnknownArgumentsAreNamed) {
  EXPECT_THAT(
      ValidateSchedule(ScheduleOf("cosine_decay", {{"initial_learning_rate", 1}})),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs the argument 'decay_steps'")));
  EXPECT_THAT(ValidateSchedule(ScheduleOf("constant", {{"learning_rate", 1}, {"stairs", 1}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no argument 'stairs'")));
}

TEST(Schedule, NegativeRatesAndEmptyPeriodsAreRefused) {
  EXPECT_THAT(ValidateSchedule(ConstantRate(-1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("learning_rate is -1")));
  EXPECT_THAT(ValidateSchedule(ConstantRate(std::nan(""))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("learning_rate is nan")));
  EXPECT_THAT(ValidateSchedule(
                  ScheduleOf("cosine_decay", {{"initial_learning_rate", 1}, {"decay_steps", 0}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("decay_steps is 0, must be more than 0")));
  EXPECT_THAT(
      ValidateSchedule(
          ScheduleOf("cosine_decay_restarts",
                     {{"initial_learning_rate", 1}, {"first_decay_steps", 5}, {"t_mul", 0.5}})),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("t_mul is 0.5, must be 1 or more")));
}

TEST(Schedule, PiecewiseListsMustFitAndAscend) {
  ScheduleConfig config = ScheduleOf("piecewise_constant_decay", {});
  config.boundaries = {10, 20};
  config.values = {1, 0.5};
  EXPECT_THAT(ValidateSchedule(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("values has 2"), HasSubstr("boundaries 2"))));
  config.values = {1, 0.5, 0.1};
  EXPECT_OK(ValidateSchedule(config));
  EXPECT_EQ(LearningRateAt(config, 10), 1);
  EXPECT_EQ(LearningRateAt(config, 11), 0.5);
  EXPECT_EQ(LearningRateAt(config, 21), 0.1);
  config.boundaries = {20, 20};
  EXPECT_THAT(ValidateSchedule(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("boundaries[1] is 20")));
  ScheduleConfig constant = ConstantRate(1);
  constant.values = {1};
  EXPECT_THAT(ValidateSchedule(constant),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("takes no boundaries")));
}

// Restart i begins at first_decay_steps * (t_mul^i - 1) / (t_mul - 1), where the cosine is at its
// top; a rounded logarithm would stay at the bottom of the period before.
TEST(Schedule, CosineRestartsBeginExactly) {
  for (const double growth : {2.0, 3.0, 10.0}) {
    const ScheduleConfig config =
        ScheduleOf("cosine_decay_restarts",
                   {{"initial_learning_rate", 1}, {"first_decay_steps", 7}, {"t_mul", growth}});
    double begin = 0;
    double length = 7;
    for (int restart = 0; restart < 12; ++restart) {
      EXPECT_NEAR(LearningRateAt(config, static_cast<int64_t>(begin)), 1, 1e-9)
          << "t_mul " << growth << ", restart " << restart;
      begin += length;
      length *= growth;
    }
  }
}

TEST(Schedule, TextShowsEveryArgument) {
  EXPECT_EQ(ScheduleText(ConstantRate(0.1)), "0.1");
  EXPECT_EQ(ScheduleText(WithDefaults(ScheduleOf(
                "polynomial_decay", {{"initial_learning_rate", 1}, {"decay_steps", 5}}))),
            "polynomial_decay(cycle=0, decay_steps=5, end_learning_rate=0.0001, "
            "initial_learning_rate=1, power=1)");
}

}  // namespace
}  // namespace cairn
