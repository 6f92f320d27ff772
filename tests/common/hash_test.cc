// Hashes are the same in every version, and spread consecutive keys.
#include "common/hash.h"

#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

// Published values of SplitMix64 with seed 0, whose state grows by the constant that MixBits adds.
TEST(Hash, MixBitsIsSplitMix64) {
  EXPECT_EQ(MixBits(0), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(MixBits(0x9e3779b97f4a7c15ULL), 0x6e789e6aa1b965f4ULL);
}

// Literal values, because they decide where data is on disk.
TEST(Hash, ValuesAreFixedForever) {
  EXPECT_EQ(HashBytes(""), MixBits(0xcbf29ce484222325ULL));
  EXPECT_EQ(HashBytes("a"), MixBits(0xaf63dc4c8601ec8cULL));  // FNV-1a's published value
  EXPECT_EQ(BucketOfKey(0, 65536), 0xe220u);
  EXPECT_EQ(BucketOfKey(0, 16), 0xeu);
}

TEST(Hash, BucketsAreInRangeAndEvenlyFilled) {
  for (uint32_t buckets = 1; buckets <= 65536; buckets *= 4) {
    std::vector<int> counts(buckets);
    for (int64_t key = -50000; key < 50000; ++key) ++counts.at(BucketOfKey(key, buckets));
    if (buckets > 256) continue;
    for (const int count : counts) EXPECT_NEAR(count * buckets / 100000.0, 1, 0.3) << buckets;
  }
}

// Doubling the number of buckets splits each bucket in two, so that buckets can be split without
// moving other keys.
TEST(Hash, FinerBucketsRefineCoarserOnes) {
  for (int64_t key = 0; key < 1000; ++key) {
    EXPECT_EQ(BucketOfKey(key, 64), BucketOfKey(key, 128) / 2);
  }
}

}  // namespace
}  // namespace cairn
