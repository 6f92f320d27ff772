// A deadline counts down, expires, and never exceeds the representable range.
#include "common/deadline.h"

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(Deadline, CountsDownFromItsTimeout) {
  const Deadline deadline = Deadline::In(absl::Seconds(30));
  EXPECT_FALSE(deadline.Expired());
  EXPECT_LE(deadline.Remaining(), absl::Seconds(30));
  EXPECT_GT(deadline.Remaining(), absl::Seconds(20));
}

TEST(Deadline, ZeroAndNegativeTimeoutsHaveExpired) {
  EXPECT_TRUE(Deadline::In(absl::ZeroDuration()).Expired());
  EXPECT_TRUE(Deadline::In(absl::Seconds(-5)).Expired());
  EXPECT_TRUE(Deadline::In(-absl::InfiniteDuration()).Expired());
  EXPECT_EQ(Deadline::In(absl::Seconds(-5)).Remaining(), absl::ZeroDuration());
}

TEST(Deadline, AnInfiniteTimeoutDoesNotOverflow) {
  EXPECT_GT(Deadline::In(absl::InfiniteDuration()).Remaining(), absl::Hours(24 * 365));
}

TEST(Deadline, EarlierReturnsTheEarlier) {
  const Deadline soon = Deadline::In(absl::Seconds(1));
  const Deadline late = Deadline::In(absl::Hours(1));
  EXPECT_LE(Deadline::Earlier(late, soon).Remaining(), absl::Seconds(1));
  EXPECT_LE(Deadline::Earlier(soon, late).Remaining(), absl::Seconds(1));
}

TEST(Deadline, WallClockTimeIsTheSameMoment) {
  const Deadline deadline = Deadline::In(absl::Minutes(5));
  const absl::Duration left = deadline.ToAbslTime() - absl::Now();
  EXPECT_LE(left, absl::Minutes(5) + absl::Seconds(1));
  EXPECT_GT(left, absl::Minutes(4));
}

}  // namespace
}  // namespace cairn
