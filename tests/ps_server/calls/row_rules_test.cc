// Tables whose keys get a row with their n-th push: each push counts once, whatever happens to the
// server, to its memory or to the placement of the rows.
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"
#include "ps_server/rows/waiting_keys.h"
#include "tests/ps_server/counted_rows.h"
#include "tests/ps_server/sync_cluster.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

wire::VariableSpec Spec(int32_t pushes, int64_t dim = 1, size_t buckets = 4) {
  wire::VariableSpec spec = TableSpec("t", dim, WireOptimizer("sgd", 1));
  spec.initializer.type = "zeros";
  spec.bucket_ps.assign(buckets, 0);
  wire::RowRules rules;
  rules.admit_after_pushes = pushes;
  spec.__set_row_rules(rules);
  return spec;
}

class RowRulesTest : public ServerTest {
 protected:
  RowRulesTest() { options_.snapshot_interval = absl::Hours(1); }
};

TEST_F(RowRulesTest, AKeyGetsItsRowWithItsNthPushAndThoseBeforeDoNotMoveIt) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(3)}));
  for (int push = 1; push <= 5; ++push) {
    ASSERT_OK(Push(client, {7, -8}));
    const float moved = push < 3 ? 0 : static_cast<float>(push - 2);
    EXPECT_THAT(Pull(client, {7, -8, 9}), ElementsAre(moved, moved, 0));
    EXPECT_EQ(Info(client).rows, push < 3 ? 0 : 2);
    EXPECT_EQ(Info(client).version, push);  // every push is an update of the table
  }
  const wire::RowFigures figures = Info(client).row_figures;
  EXPECT_EQ(figures.not_admitted, 4);
  EXPECT_EQ(figures.found, 4 + 2 * 3);           // two pushes and three pulls
  EXPECT_EQ(figures.absent, 2 * 3 + 2 * 2 + 5);  // three pushes, two pulls, and key 9
}

TEST_F(RowRulesTest, KeysThatAPushRepeatsCountOnceAndAreSummedWhenTheyAreAdmitted) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(2)}));
  ASSERT_OK(Push(client, {1, 2, 1, 1}));
  EXPECT_THAT(Pull(client, {1, 2}), ElementsAre(0, 0));
  ASSERT_OK(Push(client, {3, 1, 2, 1, 3, 1}));
  EXPECT_THAT(Pull(client, {1, 2, 3}), ElementsAre(3, 1, 0));
  EXPECT_EQ(Info(client).rows, 2);
}

TEST_F(RowRulesTest, APushThatIsSentAgainCountsOnce) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(2)}));
  wire::PushRequest push = client.NextRequest();
  push.items = {IdItem("t", wire::Selection::KEYS, {1}, {-1})};
  for (int i = 0; i < 3; ++i) {
    const auto reply = client.Send(push);
    ASSERT_OK(reply);
    EXPECT_EQ(reply->repeated, i > 0);
  }
  EXPECT_THAT(Pull(client, {1}), ElementsAre(0));
  EXPECT_EQ(Info(client).row_figures.not_admitted, 1);
}

TEST_F(RowRulesTest, AnAssignMakesTheRowAndSoDoesAPushAfterIt) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(3)}));
  ASSERT_OK(Push(client, {1}));
  ASSERT_OK(client.AssignKeys("t", {1, 2}, {10, 20}));
  EXPECT_EQ(Info(client).rows, 2);
  ASSERT_OK(Push(client, {1, 2, 3}));
  EXPECT_THAT(Pull(client, {1, 2, 3}), ElementsAre(11, 21, 0));
}

TEST_F(RowRulesTest, RulesThatCannotBeAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  for (const int32_t pushes : {0, -1, 256}) {
    EXPECT_THAT(client.Create({Spec(pushes)}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("admit_after_pushes")));
  }
  wire::VariableSpec dense = DenseSpec("w", {2}, WireOptimizer("sgd", 1));
  dense.__set_row_rules(Spec(2).row_rules);
  EXPECT_THAT(client.Create({dense}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("dense")));
  ASSERT_OK(client.Create({Spec(2)}));
  ASSERT_OK(client.Create({Spec(2)}));
  EXPECT_THAT(client.Create({Spec(3)}),
              StatusIs(StatusCode::kAlreadyExists,
                       HasSubstr("admit_after_pushes: the job has 2, asked for 3")));
  EXPECT_EQ(client.Describe()->variables[0].spec.row_rules, Spec(2).row_rules);
}

// A crash keeps the counts of the pushes that survive, and the replay adds the others'.
TEST_F(RowRulesTest, CountsAreThoseOfThePushesThatSurviveACrash) {
  ASSERT_NO_FATAL_FAILURE(Start());
  auto client = std::make_unique<TestClient>(Joined(0));
  ASSERT_OK(client->Create({Spec(4, 1, 2)}));
  std::map<int64_t, int> pushes;
  std::vector<wire::PushRequest> sent;
  std::mt19937_64 random(7);
  for (int step = 1; step <= 120; ++step) {
    std::vector<int64_t> keys;
    for (int i = 0; i < 40; ++i) keys.push_back(static_cast<int64_t>(random() % 900));
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    for (const int64_t key : keys) ++pushes[key];
    wire::PushRequest push = client->NextRequest();
    push.items = {IdItem("t", wire::Selection::KEYS, keys, std::vector<float>(keys.size(), -1))};
    sent.push_back(push);
    ASSERT_OK(client->Send(push));
    if (step % 8 == 3) {
      ASSERT_OK(client->Flush());
    }
    if (step % 16 != 15) continue;
    ASSERT_NO_FATAL_FAILURE(CrashAndSendAgain(sent, /*some_lost=*/true, client));
  }
  int64_t rows = 0;
  for (const auto& [key, count] : pushes) {
    ASSERT_THAT(Pull(*client, {key}), ElementsAre(std::max(0, count - 3))) << key;
    rows += count > 3;
  }
  EXPECT_EQ(Info(*client).rows, rows);
  EXPECT_GT(rows, 100);
  EXPECT_LT(rows, static_cast<int64_t>(pushes.size()));
}

TEST_F(RowRulesTest, ARowOnDiskAloneIsARow) {
  constexpr int64_t kDim = 64;
  constexpr int64_t kKeys = 120000;
  constexpr int64_t kMore = 20000;  // few enough that no key is mistaken for another
  constexpr int64_t kBatch = 2000;
  options_.memory_budget_bytes = 16 << 20;
  options_.memory_wait = absl::Milliseconds(1);
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(2, kDim, 64)}));
  const auto range = [](int64_t first) {
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < kBatch; ++i) keys.push_back((first + i) * 1000003);
    return keys;
  };
  // Twice to get a row, and a third time, on disk or not.
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    for (int push = 0; push < 2; ++push) ASSERT_OK(Push(client, range(first), kDim));
  }
  EXPECT_LT(Info(client).rows_in_memory, kKeys / 2);
  for (int64_t first = 0; first < kKeys + kMore; first += kBatch) {
    ASSERT_OK(Push(client, range(first), kDim));
  }
  for (int64_t first = 0; first < kKeys + kMore; first += kBatch) {
    EXPECT_THAT(Pull(client, range(first)), Each(first < kKeys ? 2 : 0)) << first;
  }
  const wire::ShardInfo info = Info(client);
  EXPECT_EQ(info.rows, kKeys);
  EXPECT_EQ(info.row_figures.not_admitted, kKeys + kMore);
  EXPECT_GT(info.row_figures.loaded, 0);
  // An assign creates rows while others are on disk.
  ASSERT_OK(client.AssignKeys("t", range(2 * kKeys),
                              std::vector<float>(static_cast<size_t>(kBatch * kDim), 5)));
  EXPECT_THAT(Pull(client, range(2 * kKeys)), Each(5));
  EXPECT_EQ(Info(client).rows, kKeys + kBatch);
}

TEST_F(RowRulesTest, WhatWaitsIsChargedAndGivenBack) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const int64_t empty = Client().Describe()->memory_used_bytes;
  TestClient client = Joined(0);
  const int64_t before = client.Describe()->memory_used_bytes;
  ASSERT_OK(client.Create({Spec(2, 1, 1)}));
  const int64_t made = Info(client).memory_bytes;
  for (int64_t push = 0; push < 100; ++push) {
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < 2000; ++i) keys.push_back(push * 2000 + i);
    ASSERT_OK(Push(client, keys));
  }
  const int64_t most = static_cast<int64_t>(WaitingKeys::kMaxBytes);
  // A row for each key that is mistaken for another: 1 in 256 while the table is full.
  const int64_t rows = Info(client).rows;
  EXPECT_LT(rows, 200000 / 256);
  const int64_t bytes = made + most + rows * (4 + 32);
  EXPECT_EQ(Info(client).memory_bytes, bytes);
  const int64_t used = client.Describe()->memory_used_bytes;
  EXPECT_GE(used, before + bytes);
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient again = Joined(0);
  EXPECT_EQ(Info(again).memory_bytes, bytes);
  EXPECT_EQ(again.Describe()->memory_used_bytes, used);
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().drop_job(state, again.caller()); }));
  const auto after = Client().Describe();
  ASSERT_OK(after);
  EXPECT_EQ(after->memory_used_bytes, empty);
}

TEST_F(RowRulesTest, ACheckpointHasTheCountsAndIsRestoredByAsManyServersOrMore) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(2)}));
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 1000; ++key) keys.push_back(key);
  ASSERT_OK(Push(client, keys));
  wire::RestoreRequest restore;
  ASSERT_NO_FATAL_FAILURE(MakeCheckpoint(&restore));
  for (const int32_t servers : {1, 2}) {
    for (int32_t index = 0; index < servers; ++index) {
      ASSERT_NO_FATAL_FAILURE(StartRestored(restore, servers, index));
      ASSERT_NO_FATAL_FAILURE(Restart());
      TestClient tool = Client();
      const wire::VariableInfo info = tool.Describe()->variables[0];
      std::vector<int64_t> here;
      for (const int64_t key : keys) {
        if (info.spec.bucket_ps[BucketOfKey(key, 4)] == index) here.push_back(key);
      }
      ASSERT_OK(Push(tool, here));
      EXPECT_EQ(Info(tool).rows, static_cast<int64_t>(here.size()));
      EXPECT_THAT(Pull(tool, here), Each(1));
    }
  }
}

TEST(RowRulesOfSteps, TheMeanOfAStepIsOnePush) {
  SyncCluster cluster(1);
  cluster.consistency.mode = wire::ConsistencyMode::SYNC;
  cluster.expected_workers = 2;
  TestClient tool = cluster.Tool(0);
  ASSERT_OK(tool.Create({Spec(2)}));
  std::vector<std::unique_ptr<SyncWorker>> workers;
  for (int32_t w = 0; w < 2; ++w) {
    workers.push_back(std::make_unique<SyncWorker>(cluster, w));
    workers.back()->Start();
  }
  for (int64_t step = 1; step <= 3; ++step) {
    for (const auto& worker : workers) {
      ASSERT_OK(worker->Push(step, 1, {{IdItem("t", wire::Selection::KEYS, {5}, {-1})}}));
    }
    workers[0]->Begin(step + 1).status().IgnoreError();  // announced, and waiting for the other
    EXPECT_THAT(workers[1]->Begin(step + 1), Opens(step + 1));
    EXPECT_THAT(workers[0]->Begin(step + 1), Opens(step + 1));
    const auto value = tool.PullKeys("t", {5});
    ASSERT_OK(value);
    EXPECT_THAT(*value, ElementsAre(step < 2 ? 0 : static_cast<float>(step - 1)));
  }
}

}  // namespace
}  // namespace cairn
