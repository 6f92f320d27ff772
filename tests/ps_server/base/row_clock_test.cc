// The time by which rows expire, beside a wall clock that jumps.
#include "ps_server/base/row_clock.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::Optional;

class RowClockTest : public ::testing::Test {
 protected:
  static absl::Time At(int64_t seconds) { return absl::FromUnixSeconds(1800000000 + seconds); }
  // The result when the wall clock shows `wall`, `monotonic` seconds after the start.
  std::optional<absl::Time> Now(absl::Time wall, int64_t monotonic) {
    wall_ = wall;
    monotonic_ = absl::Seconds(monotonic);
    return clock_.Now();
  }

  absl::Time wall_;
  absl::Duration monotonic_;
  RowClock clock_{[this] { return wall_; }, [this] { return monotonic_; }};
};

TEST_F(RowClockTest, IsTheWallClockWithoutJumps) {
  EXPECT_THAT(Now(At(0), 0), Optional(At(0)));
  EXPECT_THAT(Now(At(1), 1), Optional(At(1)));
  EXPECT_THAT(Now(At(100000), 100000), Optional(At(100000)));
}

TEST_F(RowClockTest, AJumpThatIsTakenBackLeavesNoTrace) {
  Now(At(0), 0);
  EXPECT_THAT(Now(At(86401), 1), Optional(At(2)));
  EXPECT_THAT(Now(At(2), 2), Optional(At(2)));
  EXPECT_THAT(Now(At(3), 3), Optional(At(3)));
}

TEST_F(RowClockTest, AfterAJumpThatStaysTimeRunsTwiceAsFastUntilItHasCaughtUp) {
  Now(At(0), 0);
  EXPECT_THAT(Now(At(101), 1), Optional(At(2)));
  EXPECT_THAT(Now(At(150), 50), Optional(At(100)));
  EXPECT_THAT(Now(At(200), 100), Optional(At(200)));
  EXPECT_THAT(Now(At(300), 200), Optional(At(300)));
}

TEST_F(RowClockTest, FollowsAClockThatIsSetBack) {
  Now(At(0), 0);
  EXPECT_THAT(Now(At(-1000), 1), Optional(At(-1000)));
}

TEST_F(RowClockTest, AClockThatIsNotSetYetIsNoTime) {
  EXPECT_EQ(Now(absl::UnixEpoch() + absl::Seconds(20), 20), std::nullopt);
  EXPECT_THAT(Now(At(0), 21), Optional(At(0)));
  EXPECT_EQ(Now(absl::UnixEpoch(), 22), std::nullopt);
  EXPECT_THAT(Now(At(2), 23), Optional(At(2)));
}

}  // namespace
}  // namespace cairn
