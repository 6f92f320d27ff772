// Keys sort like their fields, and any bytes read as a key are parsed or refused.
#include "storage/key.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

std::string RowsKey(const StripeId& id, uint32_t segment) {
  StripeKeys keys(id);
  return std::string(keys.Rows(segment));
}

// LoadStripes promises (shard, stripe) order and segments in the order of writing; RocksDB sorts by
// bytes.
TEST(Key, BytesSortLikeTheFields) {
  constexpr uint32_t kHighest = std::numeric_limits<uint32_t>::max();
  std::vector<std::string> keys;
  for (const StripeId& id : {StripeId{1, 0, 0}, StripeId{1, 0, 255}, StripeId{1, 0, 256},
                             StripeId{1, 1, 0}, StripeId{2, 0, 0}, StripeId{0xffffffff, 0, 0}}) {
    StripeKeys stripe(id);
    keys.emplace_back(stripe.Header());
    keys.emplace_back(stripe.Image());
    for (const uint32_t segment : {0u, 1u, 255u, 256u, kHighest}) {
      keys.push_back(RowsKey(id, segment));
    }
  }
  for (size_t i = 1; i < keys.size(); ++i) EXPECT_LT(keys[i - 1], keys[i]) << i;
}

TEST(Key, AStripesKeysParseBackToTheirFields) {
  const StripeId id{3, 1, 70000};
  for (const uint32_t segment : {0u, 81234u, std::numeric_limits<uint32_t>::max()}) {
    const absl::StatusOr<StripeKey> parsed = ParseStripeKey(RowsKey(id, segment));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->id, id);
    EXPECT_EQ(parsed->part, StripePart::kRows);
    EXPECT_EQ(parsed->segment, segment);
  }
  EXPECT_EQ(KeyText(RowsKey(id, 7)), "stripe 3/1/70000 rows 7");
}

TEST(Key, ColdRowsOfAStripeSortByKeyAndParseBack) {
  const StripeId id{3, 0, 70000};
  std::string before(StripeKeys(id).ColdPrefix());
  for (const int64_t key : {std::numeric_limits<int64_t>::min(), int64_t{-1}, int64_t{0},
                            int64_t{255}, int64_t{256}, std::numeric_limits<int64_t>::max()}) {
    StripeKeys keys(id);
    const std::string bytes(keys.Cold(key));
    EXPECT_LT(before, bytes);
    before = bytes;
    const absl::StatusOr<StripeKey> parsed = ParseStripeKey(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->id, id);
    EXPECT_EQ(parsed->key, key);
  }
  EXPECT_EQ(KeyText(StripeKeys(id).Cold(-7)), "stripe 3/0/70000 cold row -7");
  EXPECT_EQ(KeyText(StripeKeys(id).ColdCount()), "stripe 3/0/70000 cold count");
}

TEST(Key, PagesOfWaitingKeysParseBack) {
  StripeKeys keys({3, 0, 70000});
  const absl::StatusOr<StripeKey> parsed = ParseStripeKey(keys.Waiting(511));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->part, StripePart::kWaiting);
  EXPECT_EQ(parsed->segment, 511u);
  EXPECT_EQ(KeyText(keys.Waiting(511)), "stripe 3/0/70000 waiting keys 511");
  EXPECT_EQ(KeyText(keys.Ages()), "stripe 3/0/70000 row ages");
  EXPECT_EQ(ParseStripeKey(keys.Ages()).value().part, StripePart::kAges);
  EXPECT_EQ(absl::BytesToHexString(keys.Waiting(511)), "0500000003000000000001117005000001ff");
}

// DropJob deletes the range of a prefix, which must end before the first key of the next prefix.
TEST(Key, PrefixEndIsTheFirstKeyBeyondThePrefix) {
  EXPECT_EQ(PrefixEnd(StripesPrefix(7)), StripesPrefix(8));
  EXPECT_EQ(PrefixEnd(StripesPrefix(0xff)), std::string("\x05\0\0\1", 4));
  EXPECT_EQ(PrefixEnd(StripesPrefix(0xffffffff)), "\x06");
  EXPECT_LT(StripesPrefix(0xff), PrefixEnd(StripesPrefix(0xff)));
  EXPECT_LE(PrefixEnd(StripesPrefix(0xff)), StripesPrefix(0x100));
}

// Job "ab" must not lose its workers when job "a" is dropped, whatever the workers' numbers.
TEST(Key, WorkersOfJobsWithACommonNamePrefixDoNotMix) {
  const std::string from = WorkersPrefix("a");
  const std::string to = PrefixEnd(from);
  for (const int32_t worker : {-1, 0, 1, std::numeric_limits<int32_t>::max()}) {
    EXPECT_TRUE(WorkerKey("a", worker) >= from && WorkerKey("a", worker) < to);
    EXPECT_FALSE(WorkerKey("ab", worker) >= from && WorkerKey("ab", worker) < to);
  }
}

TEST(Key, AnyBytesAreParsedOrRefused) {
  std::mt19937_64 random(1);
  int refused = 0;
  for (int i = 0; i < 100000; ++i) {
    std::string key(random() % 40, '\0');
    for (char& c : key) c = static_cast<char>(random() % 8);
    ShardRecord shard;
    WorkerRecord worker;
    DecisionRecord decision;
    NoteRecord note;
    refused += !ParseStripeKey(key).ok() && !ParseVariableKey(key).ok() &&
               !ParseShardKey(key, shard).ok() && !ParseWorkerKey(key, worker).ok() &&
               !ParseDecisionKey(key, decision).ok() && !ParseNoteKey(key, note).ok();
    EXPECT_FALSE(KeyText(key).empty());
  }
  EXPECT_GT(refused, 85000);  // nearly all except notes, whose names may be any bytes
}

}  // namespace
}  // namespace cairn
