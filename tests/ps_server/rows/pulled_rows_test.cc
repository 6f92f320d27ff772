// The last pull of a worker: recognized by its keys, used by one call at a time, limited in memory.
#include "ps_server/rows/pulled_rows.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;

HostedTable MakeTable(uint32_t buckets) {
  TableLayout layout;
  layout.dim = 1;
  return HostedTable(1, std::move(layout), std::vector<int32_t>(buckets, 0), 0);
}

void Add(PulledRows& pulled, const HostedTable& table, const std::vector<int64_t>& keys) {
  PulledRows::Keys& part = pulled.Add();
  part.table = &table;
  part.groups.Build(keys, table.bucket_count());
  part.rows.assign(keys.size(), static_cast<uint32_t>(keys.size()));
}

std::unique_ptr<PulledRows> OfKeys(const HostedTable& table, size_t keys) {
  auto pulled = std::make_unique<PulledRows>();
  Add(*pulled, table, std::vector<int64_t>(keys, 3));
  return pulled;
}

TEST(PulledRows, FindsTheKeysOfATableInTheirOrder) {
  const HostedTable one = MakeTable(16), other = MakeTable(64);
  PulledRows pulled;
  Add(pulled, one, {5, -1, 7, 5});
  Add(pulled, other, {5, -1});
  const PulledRows::Keys* const found = pulled.Find(one, {5, -1, 7, 5});
  ASSERT_NE(found, nullptr);
  EXPECT_THAT(found->rows, ElementsAre(4, 4, 4, 4));
  EXPECT_NE(pulled.Find(other, {5, -1}), nullptr);
  EXPECT_EQ(pulled.Find(one, {5, 7, -1, 5}), nullptr);  // another order
  EXPECT_EQ(pulled.Find(one, {5, -1, 7}), nullptr);
  EXPECT_EQ(pulled.Find(one, {5, -1, 7, 5, 5}), nullptr);
  EXPECT_EQ(pulled.Find(one, {5, -1, 7, 6}), nullptr);
  EXPECT_EQ(pulled.Find(one, {5, -1}), nullptr);
  EXPECT_EQ(pulled.Add().table, nullptr);
}

TEST(PulledRows, RemembersTwoPullsAndReusesTheMemoryOfOthers) {
  const HostedTable table = MakeTable(16);
  PulledRows pulled;
  size_t bytes = 0;
  for (int64_t pull = 1; pull < 20; ++pull) {
    pulled.BeginPull();
    for (int64_t part = 0; part < 3; ++part) Add(pulled, table, {pull, part});
    for (int64_t part = 0; part < 3; ++part) {
      EXPECT_NE(pulled.Find(table, {pull, part}), nullptr);
      EXPECT_EQ(pulled.Find(table, {pull - 1, part}) != nullptr, pull > 1) << pull;
      EXPECT_EQ(pulled.Find(table, {pull - 2, part}), nullptr);
    }
    if (pull == 3) bytes = pulled.memory_bytes();
  }
  EXPECT_LT(pulled.memory_bytes(), 2 * bytes);
}

TEST(PulledRows, ATableWithOtherBucketsAtTheSameAddressIsNotTheSame) {
  PulledRows pulled;
  auto* const table = new HostedTable(MakeTable(16));
  Add(pulled, *table, {1, 2});
  std::destroy_at(table);
  const std::unique_ptr<HostedTable> next(new (table) HostedTable(MakeTable(32)));
  EXPECT_EQ(pulled.Find(*next, {1, 2}), nullptr);
}

TEST(LastPull, OneCallAtATimeUsesIt) {
  const HostedTable table = MakeTable(16);
  LastPull last;
  EXPECT_EQ(last.Take(), nullptr);
  last.Keep(OfKeys(table, 2), /*newer=*/true);
  {
    const LastPullUse use(&last);
    ASSERT_NE(use.get(), nullptr);
    EXPECT_EQ(LastPullUse(&last).get(), nullptr);
  }
  EXPECT_NE(last.Take(), nullptr);
  EXPECT_EQ(LastPullUse(nullptr).get(), nullptr);
}

TEST(LastPull, ANewPullReplacesItAndAReturnedOneDoesNot) {
  const HostedTable table = MakeTable(16);
  LastPull last;
  last.Keep(OfKeys(table, 1), /*newer=*/true);
  {
    const LastPullUse push(&last);
    LastPullUse pull(&last);
    Add(pull.Begin(), table, {1, 2, 3});
  }  // the pull ends first
  const LastPullUse use(&last);
  ASSERT_NE(use.get(), nullptr);
  EXPECT_NE(use.get()->Find(table, {1, 2, 3}), nullptr);
  EXPECT_EQ(use.get()->Find(table, {3}), nullptr);
}

TEST(LastPull, AllTogetherHaveALimit) {
  const HostedTable table = MakeTable(16);
  const size_t keys = 1 << 20;
  std::vector<std::unique_ptr<LastPull>> all;
  int kept = 0;
  for (int i = 0; i < 8; ++i) {
    all.push_back(std::make_unique<LastPull>());
    auto pulled = OfKeys(table, keys);
    ASSERT_GE(pulled->memory_bytes(), keys * 16);
    all.back()->Keep(std::move(pulled), /*newer=*/true);
    auto back = all.back()->Take();
    if (back == nullptr) continue;
    ++kept;
    all.back()->Keep(std::move(back), /*newer=*/false);
  }
  EXPECT_GT(kept, 1);
  EXPECT_LT(kept, 4);
  all.clear();
  LastPull after;  // the others' memory counts no longer
  after.Keep(OfKeys(table, keys), /*newer=*/true);
  EXPECT_NE(after.Take(), nullptr);
}

}  // namespace
}  // namespace cairn::test
