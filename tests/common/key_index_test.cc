// Keys are numbered by first appearance, for any keys, over growth, reuse and full tables.
#include "common/key_index.h"

#include <cstdint>
#include <random>
#include <unordered_map>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(KeyIndex, NumbersKeysByFirstAppearance) {
  KeyIndex index;
  index.Reset(4);
  EXPECT_EQ(index.Insert(7), 0);
  EXPECT_EQ(index.Insert(INT64_MIN), 1);
  EXPECT_EQ(index.Insert(7), 0);
  EXPECT_EQ(index.Insert(0), 2);
  EXPECT_EQ(index.Insert(-1), 3);
  EXPECT_EQ(index.Insert(0), 2);
  EXPECT_EQ(index.size(), 4);
}

TEST(KeyIndex, ForgetsEverythingAtReset) {
  KeyIndex index;
  for (int round = 0; round < 1000; ++round) {
    index.Reset(3);
    EXPECT_EQ(index.size(), 0);
    EXPECT_EQ(index.Insert(round), 0);
    EXPECT_EQ(index.Insert(round + 1), 1);
    EXPECT_EQ(index.Insert(round), 0);
  }
}

TEST(KeyIndex, EqualsAMapForEverySizeAndPattern) {
  KeyIndex index;
  std::mt19937_64 random(3);
  for (const size_t count : {1, 500, 513, 4096, 100, 30000}) {
    for (const uint64_t stride : {uint64_t{1}, uint64_t{1} << 48, random() | 1}) {
      index.Reset(count);
      std::unordered_map<int64_t, int32_t> want;
      for (size_t i = 0; i < 2 * count; ++i) {
        const int64_t key = static_cast<int64_t>(random() % count * stride);
        const auto number = static_cast<int32_t>(want.size());
        ASSERT_EQ(index.Insert(key), want.emplace(key, number).first->second);
      }
      ASSERT_EQ(static_cast<size_t>(index.size()), want.size());
    }
  }
}

}  // namespace
}  // namespace cairn
