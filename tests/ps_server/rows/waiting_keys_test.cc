// Counts of waiting keys: exact while they fit, then only of recently pushed keys, in a table that
// never outgrows its limit, whatever the keys. And the stored form of its pages.
#include "ps_server/rows/waiting_keys.h"

#include <map>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps_server/empty_batch.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Records only pages.
class Pages final : public EmptyBatch {
 public:
  void PutWaiting(uint32_t page, absl::string_view bytes) override {
    numbers.push_back(page);
    pages[page] = std::string(bytes);
  }

  std::vector<uint32_t> numbers;  // in the order of puts
  std::map<uint32_t, std::string> pages;
};

TEST(WaitingKeys, AKeyIsAdmittedAtItsNthPushAndThenCountedFromZero) {
  for (const uint32_t pushes : {2u, 3u, 255u}) {
    WaitingKeys keys;
    for (int round = 0; round < 2; ++round) {
      for (uint32_t i = 1; i < pushes; ++i) ASSERT_FALSE(keys.Admit(-7, pushes)) << i;
      ASSERT_TRUE(keys.Admit(-7, pushes));
    }
  }
}

TEST(WaitingKeys, CountsSurviveTheTablesGrowth) {
  WaitingKeys keys;
  std::map<int64_t, uint32_t> counts;
  std::mt19937_64 random(5);
  int64_t wrong = 0;
  for (int i = 0; i < 60000; ++i) {
    const auto key = static_cast<int64_t>(random() % 20000);
    const bool admitted = keys.Admit(key, 4);
    wrong += admitted != (++counts[key] == 4);
    if (admitted) counts.erase(key);
  }
  EXPECT_LT(wrong, 60);  // keys that share their 24 bits with another key
  EXPECT_GE(keys.bytes(), counts.size() * sizeof(uint32_t));
  EXPECT_LE(keys.bytes(), WaitingKeys::kMaxBytes);
}

TEST(WaitingKeys, AForgottenKeyStartsFromZero) {
  WaitingKeys keys;
  EXPECT_FALSE(keys.Admit(1, 2));
  keys.Forget(1);
  keys.Forget(2);
  EXPECT_FALSE(keys.Admit(1, 2));
  EXPECT_TRUE(keys.Admit(1, 2));
}

// A million keys, of which one in sixteen fits: the most recently pushed ones stay.
TEST(WaitingKeys, AtTheLimitTheLeastRecentlyPushedKeysAreForgotten) {
  constexpr int64_t kKeys = 1000000;
  WaitingKeys keys;
  int64_t early = 0;
  for (int64_t key = 0; key < kKeys; ++key) {
    early += keys.Admit(key, 3);
    if (key % 5000 != 0) continue;
    EXPECT_FALSE(keys.Admit(-1, 255)) << "comes often, so it stays";
  }
  for (int i = 0; i < 54; ++i) ASSERT_EQ(keys.Admit(-1, 255), i == 54);
  EXPECT_TRUE(keys.Admit(-1, 255)) << "200 pushes before, none forgotten";
  EXPECT_EQ(keys.bytes(), WaitingKeys::kMaxBytes);
  // A new key is mistaken for a waiting one with probability 1 in 16.7 million for each that waits,
  // so 1 in 256; an early admission needs that twice.
  EXPECT_LT(early, kKeys / 20000);
  int64_t again = 0;
  for (int64_t key = kKeys - 20000; key < kKeys; ++key) again += keys.Admit(key, 2);
  EXPECT_GT(again, 19900);
  int64_t old = 0;
  for (int64_t key = 0; key < 2000; ++key) old += keys.Admit(key, 2);
  EXPECT_LT(old, 40);
}

// Hashes of these keys agree in the bits that choose a set, so doubling the table does not help.
TEST(WaitingKeys, CollidingKeysStayWithinTheLimit) {
  WaitingKeys keys;
  int made = 0;
  for (int64_t key = 0; made < 40; ++key) {
    if ((MixBits(static_cast<uint64_t>(key)) & 0xfff) != 0) continue;
    keys.Admit(key, 2);
    ++made;
  }
  EXPECT_EQ(keys.bytes(), WaitingKeys::kMaxBytes);
}

TEST(WaitingKeys, PagesAreReadBackAndOnlyChangedPagesArePut) {
  WaitingKeys keys;
  for (int64_t key = 0; key < 3000; ++key) keys.Admit(key, 3);
  Pages all;
  keys.Put(all);
  EXPECT_EQ(all.pages.size() * WaitingKeys::kPageBytes, keys.bytes());
  Pages none;
  keys.Put(none);
  EXPECT_THAT(none.numbers, ElementsAre());
  keys.Admit(1, 3);
  Pages one;
  keys.Put(one);
  ASSERT_EQ(one.numbers.size(), 1u);
  all.pages[one.numbers[0]] = one.pages[one.numbers[0]];

  for (const bool put : {true, false}) {
    WaitingKeys read;
    for (const auto& [number, page] : all.pages) ASSERT_OK(read.Load(page, put));
    ASSERT_OK(read.FinishLoad());
    Pages again;
    read.Put(again);
    EXPECT_EQ(again.pages.size(), put ? 0 : all.pages.size());
    EXPECT_TRUE(read.Admit(1, 3));  // the third push
    EXPECT_FALSE(read.Admit(2, 3));
    EXPECT_TRUE(read.Admit(2, 3));
  }
}

TEST(WaitingKeys, MalformedPagesAreRejected) {
  WaitingKeys keys;
  EXPECT_THAT(keys.Load("x", true), StatusIs(StatusCode::kDataLoss, HasSubstr("512")));
  const std::string page(WaitingKeys::kPageBytes, '\0');
  for (int i = 0; i < 3; ++i) ASSERT_OK(keys.Load(page, true));
  EXPECT_THAT(keys.FinishLoad(), StatusIs(StatusCode::kDataLoss, HasSubstr("3 pages")));
  EXPECT_THAT(keys.Load(std::string(WaitingKeys::kMaxBytes, '\0'), true),
              StatusIs(StatusCode::kDataLoss, HasSubstr("at most")));
}

}  // namespace
}  // namespace cairn
