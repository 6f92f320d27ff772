// Every row and key is routed to the group that holds it, for even, uneven and empty shards.
#include "worker/client/routing/client_variable.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/client/fleet.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void ExpectRowsInTheirShards(const std::vector<int64_t>& sizes) {
  std::vector<DenseShard> shards;
  int64_t rows = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    shards.push_back({rows, sizes[i], static_cast<int32_t>(i % 3)});
    rows += sizes[i];
  }
  const ClientVariable variable(test::Dense("v", {rows, 2}, shards));
  for (int64_t row = 0; row < rows; ++row) {
    const DenseShard& shard = shards[variable.GroupOfRow(row)];
    EXPECT_GE(row, shard.first_row);
    EXPECT_LT(row, shard.first_row + shard.rows);
  }
}

TEST(ClientVariable, FindsTheShardOfEveryRow) {
  ExpectRowsInTheirShards({10});
  ExpectRowsInTheirShards({4, 3, 3});
  ExpectRowsInTheirShards({1, 100, 1, 7});
  ExpectRowsInTheirShards({0, 5, 0, 0, 2, 0});
}

TEST(ClientVariable, FindsTheServerOfEveryKey) {
  VariableSpec spec = test::Table("t", 4);
  spec.bucket_ps = {5, 2, 2, 0, 5, 0, 2, 2};
  const ClientVariable variable(spec);
  ASSERT_EQ(variable.groups().size(), 3u);
  EXPECT_EQ(variable.groups()[0].server, 0);  // in the order of servers
  for (int64_t key = -500; key < 500; ++key) {
    EXPECT_EQ(variable.groups()[variable.GroupOfKey(key)].server,
              spec.bucket_ps[BucketOfKey(key, 8)]);
  }
}

VariableSpec TableOn(std::vector<int32_t> servers, int64_t map_version) {
  VariableSpec spec = test::Table("t", 4);
  spec.bucket_ps = std::move(servers);
  spec.map_version = map_version;
  return spec;
}

TEST(ClientVariableMap, KnowsWhoHadNoRowsAtSomeTimeSince) {
  ClientVariableMap map;
  EXPECT_THAT(map.Insert(TableOn({0, 1, 3}, 1))->NewcomersSince(1), IsEmpty());
  map.Insert(TableOn({2, 1, 3}, 2));
  const ClientVariablePtr third = map.Insert(TableOn({2, 0, 3}, 3));
  EXPECT_THAT(third->NewcomersSince(1), ElementsAre(0, 2));  // ps:0 had no rows in the second map
  EXPECT_THAT(third->NewcomersSince(2), ElementsAre(0));
  EXPECT_THAT(third->NewcomersSince(3), IsEmpty());
  // The maps between are unknown.
  const ClientVariablePtr fifth = map.Insert(TableOn({2, 0, 1}, 5));
  EXPECT_THAT(fifth->NewcomersSince(3), ElementsAre(0, 1, 2));
  EXPECT_THAT(fifth->NewcomersSince(5), IsEmpty());
}

TEST(ClientVariableMap, AVariableOutlivesBeingForgottenWhileItIsUsed) {
  ClientVariableMap map;
  const ClientVariablePtr first = map.Insert(test::Dense("v", {2}, {{0, 2, 0}}));
  EXPECT_EQ(map.Insert(test::Dense("v", {2}, {{0, 2, 0}})), first);
  EXPECT_EQ(map.Find("v"), first);
  map.Clear();
  EXPECT_EQ(map.Find("v"), nullptr);
  EXPECT_EQ(first->spec().name, "v");
}

// Every rebalance makes a new map of each affected table, with up to 65536 buckets.
TEST(ClientVariableMap, MapsThatNobodyUsesAreFreed) {
  ClientVariableMap map;
  const std::weak_ptr<const ClientVariable> old = map.Insert(TableOn({0, 1}, 1));
  ClientVariablePtr used = map.Insert(TableOn({1, 1}, 2));
  EXPECT_TRUE(old.expired());
  const std::weak_ptr<const ClientVariable> second = used;
  map.Insert(TableOn({1, 0}, 3));
  EXPECT_FALSE(second.expired());
  used.reset();
  EXPECT_TRUE(second.expired());
}

}  // namespace
}  // namespace cairn
