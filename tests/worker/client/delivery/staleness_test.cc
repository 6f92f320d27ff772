// Mean, 99th percentile and maximum of staleness are exact, also beyond the counted range.
#include "worker/client/delivery/staleness.h"

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(Staleness, OfNoPushIsZero) {
  StalenessCounter counter;
  counter.Add(-1);  // not known
  EXPECT_EQ(counter.Summary().max, 0);
  EXPECT_EQ(counter.Summary().mean, 0);
}

TEST(Staleness, CountsEveryValue) {
  StalenessCounter counter;
  for (int i = 0; i < 98; ++i) counter.Add(1);
  counter.Add(5);
  counter.Add(5000);
  const StalenessSummary summary = counter.Summary();
  EXPECT_EQ(summary.p99, 5);  // 99 of 100 pushes are at most 5
  EXPECT_EQ(summary.max, 5000);
  EXPECT_DOUBLE_EQ(summary.mean, (98 + 5 + 5000) / 100.0);
  EXPECT_EQ(summary.histogram.size(), 15u);  // not known
  EXPECT_EQ(summary.histogram[0], (StalenessSummary::Bucket{0, 0}));
  EXPECT_EQ(summary.histogram[1], (StalenessSummary::Bucket{1, 98}));
  EXPECT_EQ(summary.histogram[4], (StalenessSummary::Bucket{8, 1}));
  EXPECT_EQ(summary.histogram[14], (StalenessSummary::Bucket{8192, 1}));
}

}  // namespace
}  // namespace cairn
