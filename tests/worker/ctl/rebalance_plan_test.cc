// Plans balance memory, empty servers, and move no more than necessary.
#include "worker/ctl/rebalance_plan.h"

#include <algorithm>
#include <numeric>

#include "common/variables/variable_map.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

VariablePlaces Table(const std::string& name, std::vector<int32_t> bucket_ps,
                     std::vector<int64_t> bytes) {
  VariablePlaces places;
  places.newest.name = name;
  places.newest.kind = VariableKind::kEmbedding;
  places.newest.bucket_ps = std::move(bucket_ps);
  places.bytes = std::move(bytes);
  return places;
}
VariablePlaces Dense(const std::string& name, std::vector<DenseShard> shards,
                     std::vector<int64_t> bytes) {
  VariablePlaces places;
  places.newest.name = name;
  places.newest.shards = std::move(shards);
  places.bytes = std::move(bytes);
  return places;
}

TEST(RebalancePlan, AServerWithoutRowsGetsItsShare) {
  const std::vector<VariablePlaces> variables = {
      Table("emb", {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, {600, 600, 0})};
  const auto plan = PlanRebalance(variables, 3, {}, 0.05);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->before.bytes, ElementsAre(600, 600, 0));
  EXPECT_THAT(plan->after.bytes, ElementsAre(400, 400, 400));
  ASSERT_EQ(plan->moves.size(), 2U);
  VariableSpec map = variables[0].newest;
  for (const PlannedMove& move : plan->moves) {
    EXPECT_EQ(move.target, 2);
    EXPECT_EQ(move.pieces.size(), 2U);
    EXPECT_EQ(move.bytes, 200);
    for (const size_t piece : move.pieces) EXPECT_EQ(map.bucket_ps[piece], move.source);
    map = MapAfter(map, move);
  }
  EXPECT_EQ(map.map_version, 3);
  for (int32_t s = 0; s < 3; ++s) EXPECT_EQ(PiecesOn(map, s), 4) << s;
}

TEST(RebalancePlan, RowsOnDiskGoWithTheirBucketsAndEvenNothingOut) {
  VariablePlaces table = Table("emb", {0, 0, 0, 0, 1}, {400, 100});
  table.cold_bytes = {4000, 0};
  const auto plan = PlanRebalance({table}, 2, {}, 0.05);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->before.bytes, ElementsAre(400, 100));
  EXPECT_THAT(plan->after.bytes, ElementsAre(300, 200));
  ASSERT_EQ(plan->moves.size(), 1U);
  EXPECT_EQ(plan->moves[0].bytes, 100);
  EXPECT_EQ(plan->moves[0].cold_bytes, 1000);
}

TEST(RebalancePlan, WhatIsEvenStays) {
  EXPECT_THAT(PlanRebalance({Table("emb", {0, 1}, {100, 100})}, 2, {}, 0.05)->moves, IsEmpty());
  EXPECT_THAT(PlanRebalance({Table("emb", {0, 1}, {103, 100})}, 2, {}, 0.05)->moves, IsEmpty());
  // One piece, whose move would only swap the two servers' roles.
  EXPECT_THAT(PlanRebalance({Dense("w", {{0, 4, 0}}, {1000, 0})}, 2, {}, 0.05)->moves, IsEmpty());
}

TEST(RebalancePlan, ServersAreEmptied) {
  const std::vector<VariablePlaces> variables = {Table("emb", {0, 1, 2, 0, 1, 2}, {200, 200, 200}),
                                                 Dense("w", {{0, 4, 2}, {4, 4, 0}}, {50, 0, 50})};
  const auto plan = PlanRebalance(variables, 3, {2}, 0.05);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->after.bytes[2], 0);
  EXPECT_EQ(plan->after.bytes[0] + plan->after.bytes[1], 700);
  EXPECT_EQ(plan->after.bytes[0], 350);
  std::vector<VariableSpec> maps = {variables[0].newest, variables[1].newest};
  for (const PlannedMove& move : plan->moves)
    maps[move.variable] = MapAfter(maps[move.variable], move);
  EXPECT_EQ(PiecesOn(maps[0], 2) + PiecesOn(maps[1], 2), 0);
}

// A server that uses no memory still has pieces to give away.
TEST(RebalancePlan, EmptyTablesLeaveServersThatAreEmptied) {
  const auto plan = PlanRebalance({Table("emb", {0, 1}, {0, 0})}, 2, {1}, 0.05);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->moves.size(), 1U);
  EXPECT_EQ(plan->moves[0].source, 1);
}

// Memory is balanced, but one bucket of two is used all the time.
TEST(RebalancePlan, ByLoadHotPiecesMove) {
  const std::vector<VariablePlaces> variables = {Table("emb", {0, 0, 0, 1, 1, 1}, {300, 300}),
                                                 Dense("w", {{0, 4, 0}, {4, 4, 1}}, {10, 10})};
  const PieceLoads loads = {{100, 40, 0, 0, 10, 0}, {60, 10}};
  const auto plan = PlanRebalance(variables, 2, {}, 0.1, loads);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->before.load, ElementsAre(200, 20));
  EXPECT_THAT(plan->after.load, ElementsAre(100, 120));
  EXPECT_THAT(plan->after.bytes, ElementsAre(210, 410));
  ASSERT_EQ(plan->moves.size(), 1U);
  EXPECT_THAT(plan->moves[0].pieces, ElementsAre(0));
  EXPECT_EQ(plan->moves[0].load, 100);
  EXPECT_THAT(PlanRebalance(variables, 2, {}, 0.05)->moves, IsEmpty());
}

// The fullest server has one piece, which fits nowhere; the next server's piece fits.
TEST(RebalancePlan, APieceThatFitsNowhereDoesNotKeepTheOthers) {
  const std::vector<VariablePlaces> variables = {Table("emb", {0, 1, 1, 2}, {1, 2, 1})};
  const PieceLoads loads = {{900, 300, 200, 0}};
  const auto plan = PlanRebalance(variables, 3, {}, 0.05, loads);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->after.load, ElementsAre(900, 200, 300));
  ASSERT_EQ(plan->moves.size(), 1U);
  EXPECT_THAT(plan->moves[0].pieces, ElementsAre(1));
}

TEST(RebalancePlan, ServersAreEmptiedByLoadToo) {
  const std::vector<VariablePlaces> variables = {Table("emb", {0, 0, 1, 1, 2}, {200, 200, 100})};
  const auto plan = PlanRebalance(variables, 3, {1}, 0.05, {{50, 0, 30, 0, 50}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->after.load[1], 0);
  EXPECT_EQ(plan->after.bytes[1], 0);
  EXPECT_EQ(plan->after.load[0] + plan->after.load[2], 130);
}

// The load counts the bytes moved for named rows, and for tables also keys. A restarted server
// counts from 0.
TEST(RebalancePlan, LoadIsWhatWasNamedBetweenTwoLooks) {
  VariablePlaces table = Table("emb", {0, 0, 1}, {1, 1});
  table.newest.shape = {16};
  VariablePlaces dense = Dense("w", {{0, 4, 0}, {4, 4, 1}}, {1, 1});
  dense.newest.shape = {8, 2, 3};
  table.uses = {100, 50, 70};
  dense.uses = {8, 0};
  const std::vector<VariablePlaces> before = {table};
  table.uses = {100, 90, 30};
  EXPECT_EQ(LoadsBetween(before, {dense, table}, 2),
            (PieceLoads{{4 * 6 * 4, 0}, {0, 20 * (64 + kKeyBytes), 15 * (64 + kKeyBytes)}}));
}

TEST(RebalancePlan, SomebodyHasToKeepTheRows) {
  EXPECT_TRUE(absl::IsInvalidArgument(
      PlanRebalance({Table("emb", {0, 1}, {1, 1})}, 2, {0, 1}, 0.05).status()));
}

}  // namespace
}  // namespace cairn
