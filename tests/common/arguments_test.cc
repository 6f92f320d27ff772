// Arguments are checked by name and range, and the message gives the allowed values.
#include "common/arguments.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::Status CheckOne(Range range, double value) {
  const ArgumentSpec spec = {"x", 0, range};
  return CheckArguments("thing", {{"x", value}}, {spec});
}

TEST(Arguments, RangesIncludeAndExcludeTheirEnds) {
  EXPECT_OK(CheckOne(Range::kAny, -1e300));
  EXPECT_OK(CheckOne(Range::kNotNegative, 0));
  EXPECT_OK(CheckOne(Range::kPositive, 1e-300));
  EXPECT_OK(CheckOne(Range::kNotPositive, 0));
  EXPECT_OK(CheckOne(Range::kAtLeastOne, 1));
  EXPECT_OK(CheckOne(Range::kZeroToOne, 1));
  EXPECT_OK(CheckOne(Range::kZeroToBelowOne, 0));
  EXPECT_OK(CheckOne(Range::kAboveZeroToOne, 1));
  EXPECT_OK(CheckOne(Range::kFlag, 1));
  EXPECT_FALSE(CheckOne(Range::kNotNegative, -1e-9).ok());
  EXPECT_FALSE(CheckOne(Range::kPositive, 0).ok());
  EXPECT_FALSE(CheckOne(Range::kNotPositive, 1e-9).ok());
  EXPECT_FALSE(CheckOne(Range::kAtLeastOne, 0.99).ok());
  EXPECT_FALSE(CheckOne(Range::kZeroToOne, 1.01).ok());
  EXPECT_FALSE(CheckOne(Range::kZeroToBelowOne, 1).ok());
  EXPECT_FALSE(CheckOne(Range::kAboveZeroToOne, 0).ok());
  EXPECT_FALSE(CheckOne(Range::kFlag, 2).ok());
  EXPECT_FALSE(CheckOne(Range::kAny, HUGE_VAL).ok());
  EXPECT_FALSE(CheckOne(Range::kAny, std::nan("")).ok());
}

TEST(Arguments, MessagesGiveFoundAndAllowedValues) {
  EXPECT_THAT(CheckOne(Range::kZeroToBelowOne, 1.5),
              StatusIs(absl::StatusCode::kInvalidArgument, "thing: x is 1.5, must be in [0, 1)"));
  const ArgumentSpec specs[] = {{"alpha", 0, Range::kAny}, {"beta", 0, Range::kAny}};
  EXPECT_THAT(CheckArguments("thing", {{"betta", 1}}, specs),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("(did you mean 'beta'?)"), HasSubstr("alpha, beta"))));
}

TEST(Arguments, OptionalArgumentsGetNoDefault) {
  const ArgumentSpec specs[] = {{"a", 7, Range::kAny},
                                {"b", 8, Range::kAny, ArgumentSpec::kOptional},
                                {"c", 9, Range::kAny, ArgumentSpec::kRequired}};
  EXPECT_THAT(CheckArguments("thing", {}, specs),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs the argument 'c'")));
  Arguments arguments = {{"c", 1}};
  EXPECT_OK(CheckArguments("thing", arguments, specs));
  AddDefaults(specs, &arguments);
  EXPECT_EQ(ArgumentsText(arguments), "a=7, c=1");
  EXPECT_EQ(ArgumentOr(arguments, "b", -1), -1);
}

}  // namespace
}  // namespace cairn
