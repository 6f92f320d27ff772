#include "common/metrics/slotted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cairn {
namespace {

using testing::ElementsAre;

constexpr double kBounds[] = {1, 2, 4};

TEST(Slotted, BoundsAreInclusiveAndLargerValuesHaveABucket) {
  Histogram histogram(kBounds);
  for (const double value : {0.0, 1.0, 1.5, 2.0, 4.0, 100.0}) histogram.Observe(value);
  const Histogram::Reading reading = histogram.Read();
  EXPECT_THAT(reading.counts, ElementsAre(2, 2, 1, 1));
  EXPECT_EQ(reading.count, 6);
  EXPECT_EQ(reading.sum, 108.5);
  EXPECT_EQ(reading.max, 100);
}

TEST(Slotted, AQuantileIsTheBoundThatItsShareDoesNotExceed) {
  Histogram histogram(kBounds);
  EXPECT_EQ(histogram.Read().Quantile(0.99), 0);
  for (int i = 0; i < 98; ++i) histogram.Observe(1);
  histogram.Observe(3);
  histogram.Observe(50);
  EXPECT_EQ(histogram.Read().Quantile(0.5), 1);
  EXPECT_EQ(histogram.Read().Quantile(0.99), 4);
  EXPECT_EQ(histogram.Read().Quantile(1), 50);  // above the last bound: the largest value
}

// More threads than slots, so that some share a slot.
TEST(Slotted, CountsOfManyThreadsAddUp) {
  constexpr int kThreads = 3 * kMeterSlots;
  constexpr int kEach = 2000;
  SlottedCount count;
  Histogram histogram(kBounds);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        count.Add(2);
        histogram.Observe(i % 2 == 0 ? 1 : 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count.Read(), int64_t{2} * kThreads * kEach);
  const Histogram::Reading reading = histogram.Read();
  EXPECT_THAT(reading.counts, ElementsAre(kThreads * kEach / 2, 0, kThreads * kEach / 2, 0));
  EXPECT_EQ(reading.sum, 2.0 * kThreads * kEach);
  EXPECT_EQ(reading.max, 3);
}

}  // namespace
}  // namespace cairn
