// The finished share of a run, its remaining time, and the lines that report them.
#include "worker/trainer/reports/progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kStart = absl::Seconds(1000);

TEST(ProgressEstimate, CountsOnlyWhatThisStartHasGained) {
  ProgressEstimate estimate;
  // A run that an earlier start trained to 60 %.
  const Progress first = estimate.Update(0.6, kStart);
  EXPECT_EQ(first.share, 0.6);
  EXPECT_FALSE(first.left.has_value());
  // A tenth in 10 s: three tenths remain.
  const Progress later = estimate.Update(0.7, kStart + absl::Seconds(10));
  EXPECT_EQ(later.share, 0.7);
  ASSERT_TRUE(later.left.has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(*later.left), 30, 1e-6);
  EXPECT_EQ(estimate.Update(1, kStart + absl::Seconds(40)).left, absl::ZeroDuration());
}

TEST(ProgressLines, TheFirstComesAfterASecondAndTheOthersAtTheInterval) {
  ProgressLines lines("worker:3", absl::Seconds(10), kStart);
  EXPECT_FALSE(lines.Due(kStart + absl::Milliseconds(999)));
  EXPECT_TRUE(lines.Due(kStart + absl::Seconds(1)));
  EXPECT_EQ(lines.Next({.step = 7,
                        .rows = 700,
                        .loss = 0.69314,
                        .progress = {.share = 0.25, .left = absl::Seconds(65)}},
                       kStart + absl::Seconds(1)),
            "worker:3: step 7, 25 % done, 700 rows/s, loss 0.6931, 1:05 left");
  EXPECT_FALSE(lines.Due(kStart + absl::Milliseconds(10999)));
  EXPECT_TRUE(lines.Due(kStart + absl::Seconds(11)));
  // The speed is that of the last ten seconds.
  EXPECT_THAT(lines.Next({.step = 8, .rows = 1700}, kStart + absl::Seconds(11)),
              HasSubstr(" 100 rows/s"));
}

TEST(ProgressLines, AShortIntervalHoldsForTheFirstToo) {
  ProgressLines lines("worker:0", absl::Milliseconds(100), kStart);
  EXPECT_TRUE(lines.Due(kStart + absl::Milliseconds(100)));
  EXPECT_THAT(lines.Next({.step = 1}, kStart + absl::Milliseconds(100)), Not(HasSubstr("left")));
}

TEST(ProgressLines, AnIntervalOfZeroIsNoLine) {
  const ProgressLines lines("worker:0", absl::ZeroDuration(), kStart);
  EXPECT_FALSE(lines.Due(kStart + absl::Hours(1000)));
}

TEST(ClockText, HasHoursWhereThereAreAny) {
  EXPECT_EQ(ClockText(absl::Seconds(5)), "0:05");
  EXPECT_EQ(ClockText(absl::Minutes(62) + absl::Seconds(5)), "1:02:05");
}

}  // namespace
}  // namespace cairn
