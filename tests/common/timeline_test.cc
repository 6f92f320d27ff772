// A timeline distinguishes one life of a job from another.
#include "common/timeline.h"

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(Timeline, IncreasesWhateverTheClockSaysAndCountsItsServers) {
  const int64_t first = NewTimeline(2, 0);
  EXPECT_GT(first, 0);
  EXPECT_EQ(ServersOfTimeline(first), 2);
  const int64_t ahead = first + (int64_t{1000} << 32);
  const int64_t next = NewTimeline(3, ahead);
  EXPECT_GT(FirstIncarnation(next), FirstIncarnation(ahead));
  EXPECT_EQ(ServersOfTimeline(next), 3);
  EXPECT_EQ(ServersOfTimeline(WithServers(next, 1)), 1);
  EXPECT_EQ(FirstIncarnation(WithServers(next, 1)), FirstIncarnation(next));
}

TEST(Timeline, IncarnationsCountStartsAndFollowTheClockForwardsOnly) {
  const absl::Time noon = absl::FromUnixSeconds(1'700'000'000);
  const int64_t first = NextIncarnation(0, NewTimeline(1, 0, noon));
  EXPECT_EQ(StartsOf(first), 1);
  const int64_t second = NextIncarnation(first, NewTimeline(1, 0, noon - absl::Hours(1)));
  EXPECT_EQ(second, first + 1);
  const int64_t third = NextIncarnation(second, NewTimeline(1, 0, noon + absl::Seconds(1)));
  EXPECT_GT(FirstIncarnation(third), second);
  EXPECT_EQ(StartsOf(third), 3);
  EXPECT_EQ(NextIncarnation(0xffffffff, 0), int64_t{1} << 32);
}

TEST(Timeline, TextShowsItsTime) {
  EXPECT_EQ(TimelineText((int64_t{86400} << 32) + 12345), "2020-01-02T00:00:00Z");
}

TEST(Timeline, OldManifestsHaveOnlyTheSecond) {
  EXPECT_EQ(TimelineOfManifest(7), int64_t{7} << 32);
  EXPECT_EQ(TimelineOfManifest((int64_t{7} << 32) + 5), (int64_t{7} << 32) + 5);
  EXPECT_EQ(TimelineOfManifest(0), 0);
}

}  // namespace
}  // namespace cairn
