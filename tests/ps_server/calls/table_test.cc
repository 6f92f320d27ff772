// Embedding tables: lookups, creation on first push, repeated keys, scans.
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "common/hash.h"
#include "common/variables/initializer.h"
#include "tests/ps_server/server_fixture.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TableTest : public ServerTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(Start()); }

  static std::vector<float> InitialRow(const std::string& table, int64_t key, int64_t dim) {
    std::vector<float> row(static_cast<size_t>(dim));
    InitializerConfig config;
    config.type = "uniform";
    InitializeRow(config, HashBytes(table), key, absl::MakeSpan(row));
    return row;
  }
};

TEST_F(TableTest, AbsentKeyYieldsItsInitialValueAndIsNotStored) {
  TestClient client = Client();
  ASSERT_OK(client.Create({TableSpec("t", 3, WireOptimizer("adagrad", 1))}));
  EXPECT_EQ(*client.PullKeys("t", {42}), InitialRow("t", 42, 3));
  EXPECT_THAT(*client.PullKeys("t", {42}, "accumulator"), Each(0.1f));
  EXPECT_EQ(client.Describe()->variables[0].shards[0].rows, 0);
}

TEST_F(TableTest, FirstPushMakesTheRowAndMovesItFromItsInitialValue) {
  TestClient client = Client();
  ASSERT_OK(client.Create({TableSpec("t", 2, WireOptimizer("sgd", 1))}));
  ASSERT_OK(client.PushKeys("t", {-7, 1LL << 60}, {1, 2, 3, 4}));
  const std::vector<float> first = InitialRow("t", -7, 2);
  EXPECT_THAT(*client.PullKeys("t", {-7}), ElementsAre(first[0] - 1, first[1] - 2));
  EXPECT_EQ(client.Describe()->variables[0].shards[0].rows, 2);
}

// The push finds the keys of the worker's last pull. AddressSanitizer sees a read of rows that the
// pull never found.
TEST_F(TableTest, APushAfterAPullThatFailedFindsItsRowsItself) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({TableSpec("t", 1, WireOptimizer("sgd", 1))}));
  ASSERT_OK(client.PullKeys("t", {1, 2, 3}));
  ASSERT_OK(client.PullKeys("t", {4, 5, 6}));
  std::vector<int64_t> keys(60000);
  std::iota(keys.begin(), keys.end(), 7);
  wire::PullRequest request;
  request.caller = client.caller();
  request.items.resize(2);
  request.items[0].variable = "t";
  request.items[0].selection = wire::Selection::KEYS;
  request.items[0].ids = PayloadOf(keys);
  request.items[1].variable = "other";
  wire::PullReply reply;
  EXPECT_TRUE(absl::IsNotFound(CallStatus([&] { service().pull(reply, request); })));
  ASSERT_OK(client.PushKeys("t", keys, std::vector<float>(keys.size(), 1)));
  EXPECT_EQ(client.Describe()->variables[0].shards[0].rows, 60000);
}

TEST_F(TableTest, RowsAreCountedByBucketWheneverTheyAreNamed) {
  constexpr uint32_t kBuckets = 4;
  TestClient client = Joined(0);
  wire::VariableSpec spec = TableSpec("t", 2, WireOptimizer("sgd", 1));
  spec.bucket_ps.assign(kBuckets, 0);
  ASSERT_OK(client.Create({spec}));
  std::vector<int64_t> uses(kBuckets);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 100; ++key) {
    keys.push_back(key);
    ++uses[BucketOfKey(key, kBuckets)];
  }
  EXPECT_THAT(client.Describe(/*with_uses=*/true)->variables[0].shards[0].uses,
              ElementsAre(0, 0, 0, 0));
  ASSERT_OK(client.PullKeys("t", keys));
  EXPECT_EQ(client.Describe(/*with_uses=*/true)->variables[0].shards[0].uses, uses);
  ASSERT_OK(client.PushKeys("t", keys, std::vector<float>(2 * keys.size())));
  for (int64_t& bucket : uses) bucket *= 2;
  EXPECT_EQ(client.Describe(/*with_uses=*/true)->variables[0].shards[0].uses, uses);
  // A push that was applied before is not applied again.
  --client.sequence;
  ASSERT_OK(client.PushKeys("t", keys, std::vector<float>(2 * keys.size())));
  EXPECT_EQ(client.Describe(/*with_uses=*/true)->variables[0].shards[0].uses, uses);
  EXPECT_THAT(client.Describe()->variables[0].shards[0].uses, IsEmpty());
}

// Keys of one bucket and of many, more than the batches of a lookup, with enough rows for the index
// and the row chunks to grow while the push runs.
// Otherwise callers that only read could exhaust the server's memory.
TEST_F(TableTest, AReplyWithTheUsesOfManyBucketsIsCharged) {
  constexpr size_t kBuckets = 65536;
  TestClient client = Client();
  wire::VariableSpec spec = TableSpec("wide", 1, WireOptimizer("sgd", 1));
  spec.bucket_ps.assign(kBuckets, 0);
  ASSERT_OK(client.Create({spec}));
  const int64_t used = client.Describe()->memory_used_bytes;
  EXPECT_GT(client.Describe(/*with_uses=*/true)->memory_used_bytes,
            used + static_cast<int64_t>(kBuckets * sizeof(int64_t)));
  EXPECT_EQ(client.Describe()->memory_used_bytes, used) << "the charge was not released";
}

TEST_F(TableTest, ManyKeysKeepTheirOwnRows) {
  TestClient client = Client();
  wire::VariableSpec one_bucket = TableSpec("one", 2, WireOptimizer("sgd", 1));
  one_bucket.bucket_ps = {0};
  wire::VariableSpec many = TableSpec("many", 2, WireOptimizer("sgd", 1));
  one_bucket.initializer.type = many.initializer.type = "zeros";
  ASSERT_OK(client.Create({one_bucket, many}));
  constexpr int64_t kKeys = 20000;
  std::vector<int64_t> keys;
  std::vector<float> gradient;
  for (int64_t i = 0; i < kKeys; ++i) {
    keys.push_back(i * 1000003 - kKeys);
    gradient.insert(gradient.end(), {static_cast<float>(-i), 1.0f});
  }
  for (const char* name : {"one", "many"}) {
    ASSERT_OK(client.PushKeys(name, keys, gradient));
    std::vector<int64_t> backwards(keys.rbegin(), keys.rend());
    const std::vector<float> rows = *client.PullKeys(name, backwards);
    for (int64_t i = 0; i < kKeys; ++i) {
      ASSERT_EQ(rows[static_cast<size_t>(2 * i)], static_cast<float>(kKeys - 1 - i)) << name;
      ASSERT_EQ(rows[static_cast<size_t>(2 * i) + 1], -1.0f) << name;
    }
  }
}

// A push looks for its rows where the worker's last pull found them. By then these may be other
// rows: created meanwhile, or of a deleted table.
TEST_F(TableTest, PushOfPulledKeysMovesTheirRowsWhateverCameBetween) {
  TestClient client = Joined(0);
  TestClient other = Client();
  wire::VariableSpec spec = TableSpec("t", 1, WireOptimizer("sgd", 1));
  spec.initializer.type = "zeros";
  ASSERT_OK(client.Create({spec}));
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 500; ++key) keys.push_back(key);
  const std::vector<int64_t> backwards(keys.rbegin(), keys.rend());
  std::vector<float> gradient;
  for (const int64_t key : keys) gradient.push_back(static_cast<float>(-key));
  const std::vector<float> backwards_gradient(gradient.rbegin(), gradient.rend());

  EXPECT_THAT(*client.PullKeys("t", keys), Each(0.0f));
  ASSERT_OK(other.PushKeys("t", {499, 3, 7}, {0, 0, 0}));  // rows that did not exist
  ASSERT_OK(client.PushKeys("t", keys, gradient));
  ASSERT_OK(client.PullKeys("t", keys));
  ASSERT_OK(client.PushKeys("t", keys, gradient));
  std::vector<float> twice;
  for (const int64_t key : keys) twice.push_back(static_cast<float>(2 * key));
  EXPECT_EQ(*client.PullKeys("t", keys), twice);
  ASSERT_OK(client.PushKeys("t", backwards, backwards_gradient));  // another order than pulled
  ASSERT_OK(client.PullKeys("t", {1, 1, 2}));
  ASSERT_OK(client.PushKeys("t", {1, 1, 2}, {1, 1, 1}));
  EXPECT_THAT(*client.PullKeys("t", {1, 2, 3}), ElementsAre(1, 5, 9));

  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().drop_job(state, client.caller()); }));
  TestClient again = Joined(0);
  ASSERT_OK(again.Create({spec}));
  ASSERT_OK(again.PushKeys("t", backwards, backwards_gradient));  // rows in another order
  ASSERT_OK(again.PushKeys("t", keys, gradient));
  EXPECT_EQ(*again.PullKeys("t", keys), twice);
}

TEST_F(TableTest, RepeatedKeysAreSummedBeforeTheUpdateNewAndOldRowsAlike) {
  TestClient client = Client();
  ASSERT_OK(client.Create({TableSpec("t", 1, WireOptimizer("adagrad", 1))}));
  ASSERT_OK(client.PushKeys("t", {5, 6, 5}, {1, 7, 2}));
  EXPECT_THAT(*client.PullKeys("t", {5, 6}, "accumulator"), ElementsAre(9.1f, 49.1f));
  ASSERT_OK(client.PushKeys("t", {6, 6, 6, 5}, {1, 1, 1, 0}));
  EXPECT_THAT(*client.PullKeys("t", {5, 6}, "accumulator"), ElementsAre(9.1f, 58.1f));
}

TEST_F(TableTest, RowNotPushedDoesNotChangeUnderAnyOptimizer) {
  TestClient client = Client();
  ASSERT_OK(client.Create({TableSpec("t", 2, WireOptimizer("adam", 0.1))}));
  ASSERT_OK(client.PushKeys("t", {1, 2}, {1, 1, 1, 1}));
  const std::vector<float> before = *client.PullKeys("t", {2});
  const std::vector<float> momentum = *client.PullKeys("t", {2}, "momentum");
  ASSERT_OK(client.PushKeys("t", {1}, {1, 1}));
  EXPECT_EQ(*client.PullKeys("t", {2}), before);
  EXPECT_EQ(*client.PullKeys("t", {2}, "momentum"), momentum);
}

TEST_F(TableTest, ClipnormOfATableIsTakenOverSummedRows) {
  TestClient client = Client();
  wire::VariableSpec spec = TableSpec("t", 1, WireOptimizer("sgd", 1));
  spec.initializer.type = "zeros";
  spec.optimizer.clipnorm = 1;
  ASSERT_OK(client.Create({spec}));
  ASSERT_OK(client.PushKeys("t", {8, 9, 8}, {1, 4, 2}));
  EXPECT_THAT(*client.PullKeys("t", {8, 9}), ElementsAre(-0.6f, -0.8f));
}

TEST_F(TableTest, KeysOfAnotherServersBucketsAreRefusedNamingTheMap) {
  options_.server_count = 2;
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient client = Client();
  wire::VariableSpec spec = TableSpec("t", 1, WireOptimizer("sgd", 1));
  spec.bucket_ps = {0, 1, 0, 1};
  spec.map_version = 6;
  ASSERT_OK(client.Create({spec}));
  int64_t here = 0;
  while (BucketOfKey(here, 4) % 2 != 0) ++here;
  int64_t elsewhere = 0;
  while (BucketOfKey(elsewhere, 4) % 2 != 1) ++elsewhere;
  ASSERT_OK(client.PushKeys("t", {here}, {1}));
  EXPECT_THAT(client.PushKeys("t", {here, elsewhere}, {1, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("lives on ps:1 by partition map version 6: reload the map")));
  EXPECT_FALSE(client.PullKeys("t", {elsewhere}).ok());
}

TEST_F(TableTest, AssignMakesRowsAndSetsSlots) {
  TestClient client = Client();
  ASSERT_OK(client.Create({TableSpec("t", 2, WireOptimizer("adagrad", 1))}));
  ASSERT_OK(client.AssignKeys("t", {3, 4}, {1, 2, 3, 4}));
  ASSERT_OK(client.AssignKeys("t", {4}, {5, 6}, "accumulator"));
  EXPECT_THAT(*client.PullKeys("t", {4, 3}), ElementsAre(3, 4, 1, 2));
  EXPECT_THAT(*client.PullKeys("t", {4, 3}, "accumulator"), ElementsAre(5, 6, 0.1f, 0.1f));
  EXPECT_THAT(client.AssignKeys("t", {4, 4}, {1, 2, 3, 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("id 4 is named twice")));
}

TEST_F(TableTest, ScanYieldsEveryStoredRowOnce) {
  TestClient client = Client();
  wire::VariableSpec spec = TableSpec("t", 1, WireOptimizer("sgd", 1));
  spec.initializer.type = "zeros";
  ASSERT_OK(client.Create({spec}));
  std::vector<int64_t> keys;
  std::vector<float> gradient;
  for (int64_t key = 0; key < 1000; ++key) {
    keys.push_back(key);
    gradient.push_back(static_cast<float>(-key));
  }
  ASSERT_OK(client.PushKeys("t", keys, gradient));
  for (const int32_t max_rows : {1, 7, 64, 1000, 65536}) {
    wire::ScanRequest request;
    request.caller = client.caller();
    request.variable = "t";
    request.max_rows = max_rows;
    std::set<int64_t> seen;
    for (int calls = 0; calls == 0 || !request.cursor.empty(); ++calls) {
      ASSERT_LT(calls, 1002);
      wire::ScanReply reply;
      ASSERT_OK(CallStatus([&] { service().scan(reply, request); }));
      const std::vector<int64_t> some = Values<int64_t>(reply.keys);
      const std::vector<float> values = Values<float>(reply.values);
      ASSERT_LE(some.size(), static_cast<size_t>(max_rows));
      for (size_t i = 0; i < some.size(); ++i) {
        EXPECT_TRUE(seen.insert(some[i]).second) << some[i];
        EXPECT_EQ(values[i], static_cast<float>(some[i]));
      }
      request.cursor = reply.cursor;
    }
    EXPECT_EQ(seen.size(), 1000u) << max_rows;
  }
}

TEST_F(TableTest, DamagedCursorIsRefusedOrPastTheEnd) {
  TestClient client = Client();
  ASSERT_OK(client.Create({TableSpec("t", 1, WireOptimizer("sgd", 1))}));
  wire::ScanRequest request;
  request.caller = client.caller();
  request.variable = "t";
  wire::ScanReply reply;
  request.cursor = "abc";
  EXPECT_THAT(CallStatus([&] { service().scan(reply, request); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cursor has 3 bytes")));
  request.cursor = std::string(12, '\xff');
  EXPECT_OK(CallStatus([&] { service().scan(reply, request); }));
  EXPECT_TRUE(reply.cursor.empty());
  EXPECT_TRUE(reply.keys.empty());
}

}  // namespace
}  // namespace cairn
