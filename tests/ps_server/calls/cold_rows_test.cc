// Tables larger than memory: rows leave memory and come back with every push, through restarts,
// crashes, checkpoints and restores, and each row is counted and shown once.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"
#include "ps_server/engine/engine.h"
#include "tests/ps_server/counted_rows.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

using absl::StatusCode;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kDim = 64;
constexpr int64_t kBatch = 2000;
constexpr int64_t kKeys = 160000;  // four times the number that fits: a row is charged 288 bytes

// The number of pushes by key, the largest key first: each of them adds 1 to the whole row.
using Model = std::map<int64_t, int, std::greater<>>;

class ColdRowsTest : public ServerTest {
 protected:
  void SetUp() override {
    options_.memory_budget_bytes = 16 << 20;
    options_.memory_wait = absl::Milliseconds(1);
    options_.snapshot_interval = absl::Hours(1);
  }

  static wire::VariableSpec Spec(const std::string& name) {
    wire::VariableSpec spec = TableSpec(name, kDim, WireOptimizer("sgd", 1));
    spec.initializer.type = "zeros";
    spec.bucket_ps.assign(16, 0);
    return spec;
  }
  static absl::Status PushOnes(TestClient& client, const std::vector<int64_t>& keys, Model& model) {
    RETURN_IF_ERROR(Push(client, keys, kDim));
    for (const int64_t key : keys) ++model[key];
    return absl::OkStatus();
  }
  // Pushes every key once, in an unrelated order.
  static void PushAll(TestClient& client, Model& model) {
    for (int64_t first = 0; first < kKeys; first += kBatch) {
      ASSERT_OK(PushOnes(client, Range(first, kBatch), model));
    }
  }
  static void ExpectHolds(TestClient& client, const Model& model) {
    ExpectRows(client, model, kDim, 5000);
  }
  // Rows that exceed the budget are not in memory.
  static void ExpectCounts(TestClient& client, const Model& model) {
    const wire::DescribeReply described = *client.Describe();
    const wire::ShardInfo& info = described.variables[0].shards[0];
    EXPECT_EQ(info.rows, static_cast<int64_t>(model.size()));
    EXPECT_LT(info.rows_in_memory, kKeys / 3);
    EXPECT_GT(info.rows_in_memory, kKeys / 8);
    EXPECT_LE(described.memory_used_bytes, described.memory_budget_bytes);
  }
};

TEST_F(ColdRowsTest, RowsLeaveMemoryAndComeBackWithEveryPushInThem) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  ExpectCounts(client, model);
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<int64_t> keys;
    for (int i = 0; i < kBatch; ++i) {
      const auto any = static_cast<int64_t>(random() % static_cast<uint64_t>(2 * kKeys));
      keys.push_back(Range(any % (round % 2 == 0 ? 2 * kKeys : 3000), 1)[0]);
    }
    std::vector<int64_t> distinct = keys;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    if (round % 3 == 0) {
      const auto pulled = client.PullKeys("t", keys);
      ASSERT_OK(pulled);
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto known = model.find(keys[i]);
        ASSERT_EQ((*pulled)[i * kDim],
                  static_cast<float>(known == model.end() ? 0 : known->second));
      }
    }
    ASSERT_OK(PushOnes(client, distinct, model));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(client, model));
  ExpectCounts(client, model);
  const wire::RowFigures figures = Info(client).row_figures;
  EXPECT_GT(figures.found, 0);
  EXPECT_GT(figures.loaded, kKeys / 2);
  EXPECT_GE(figures.absent, static_cast<int64_t>(model.size()));
  EXPECT_GT(figures.evicted, kKeys / 2);
}

// Rows are evicted in favour of the process's other memory: of a small budget, a quarter. The
// memory that they free returns to the system while the table is in use.
TEST_F(ColdRowsTest, RowsMakeRoomForTheRestOfTheirProcess) {
  options_.memory_budget_bytes = 32 << 20;
  options_.own_process = true;
  const std::vector<char> rest(64 << 20, 1);
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK(PushOnes(client, Range(round * 1000, kBatch), model));
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(client, model));
  }
  const int64_t row_charge = kDim * 4 + 32;
  EXPECT_LE(Info(client).rows_in_memory, options_.memory_budget_bytes / 10 * 7 / row_charge);
  EXPECT_GT(Info(client).rows_in_memory, options_.memory_budget_bytes / 10 * 3 / row_charge);
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient again = Client();
  // A start leaves space for later charges.
  EXPECT_LE(Info(again).rows_in_memory, options_.memory_budget_bytes / 10 * 7 / row_charge);
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(again, model));
}

TEST_F(ColdRowsTest, ARestartFindsEveryRowAndKeepsWithinTheBudget) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  for (int restart = 0; restart < 2; ++restart) {
    ASSERT_NO_FATAL_FAILURE(Restart());
    TestClient again = Joined(0);
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(again, model));
    ExpectCounts(again, model);
    ASSERT_OK(PushOnes(again, Range(restart * 40000, 3000), model));
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(again, model));
  }
}

// A crash leaves each stripe as it was at its last write, with its watermarks: later pushes are
// sent again and count once. The loader interrupts a stripe whose rows exceed the budget and
// returns to it later. The index of a stripe with a few rows is full at once, so the second visit
// grew it without the rows' keys, and crashed.
TEST_F(ColdRowsTest, ARestartFindsTheRowsOfStripesWithAFewRowsEach) {
  constexpr int64_t kWide = 4096, kRows = 1500;  // 16 KiB each; 11 in each of 128 stripes
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  wire::VariableSpec spec = TableSpec("t", kWide, WireOptimizer("sgd", 1));
  spec.initializer.type = "zeros";
  spec.bucket_ps.assign(128, 0);
  ASSERT_OK(client.Create({spec}));
  for (int64_t first = 0; first < kRows; first += 50) {
    ASSERT_OK(client.PushKeys("t", Range(first, 50), std::vector<float>(50 * kWide, -1)).status());
  }
  for (int round = 0; round < 2; ++round) {
    ASSERT_NO_FATAL_FAILURE(Restart());
    TestClient after = Joined(round + 1);
    for (int64_t first = 0; first < kRows; first += 50) {
      const auto values = after.PullKeys("t", Range(first, 50));
      ASSERT_OK(values);
      ASSERT_THAT(*values, Each(1.0f)) << first;
    }
  }
}

TEST_F(ColdRowsTest, ACrashLosesNothingThatWasDurableAndReplayDoublesNothing) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  ASSERT_OK(client.Flush());
  const int64_t durable = client.sequence;
  std::vector<std::vector<int64_t>> later;
  for (int64_t i = 0; i < 30; ++i) {
    later.push_back(Range((i * 7919) % (kKeys - kBatch), kBatch));
    ASSERT_OK(PushOnes(client, later.back(), model));
  }
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  crashed_.reset();
  TestClient back = Client(0);
  EXPECT_EQ(back.Hello(client.caller().incarnation)->state.applied, durable);
  Model counted;
  for (const std::vector<int64_t>& keys : later) ASSERT_OK(PushOnes(back, keys, counted));
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(back, model));
  EXPECT_EQ(Info(back).rows, kKeys);
}

TEST_F(ColdRowsTest, UnderLogWhatWasAcknowledgedSurvivesACrash) {
  options_.durability = Durability::kLog;
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  crashed_.reset();
  TestClient back = Joined(0);
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(back, model));
}

// Half of the state is then on disk, and no worker can send the other half again.
TEST_F(ColdRowsTest, UnderOffACrashWithRowsOnDiskIsNotServedAndACleanEndIs) {
  options_.durability = Durability::kOff;
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  const std::string copy = CopyAsOfNow();
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient again = Joined(0);
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(again, model));
  ASSERT_NO_FATAL_FAILURE(Stop());
  options_.directory = copy;
  EXPECT_THAT(OpenStatus(), StatusIs(StatusCode::kDataLoss, HasSubstr("UNFINISHED")));
}

TEST_F(ColdRowsTest, AScanShowsEveryRowOnceWhileRowsComeAndGo) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  wire::ScanRequest request;
  request.caller = client.caller();
  request.variable = "t";
  request.max_rows = 3000;
  Model seen;
  int64_t calls = 0;
  do {
    wire::ScanReply reply;
    ASSERT_OK(CallStatus([&] { service().scan(reply, request); }));
    const std::vector<float> values = Values<float>(reply.values);
    size_t i = 0;
    for (const int64_t key : Values<int64_t>(reply.keys)) {
      ++seen[key];
      ASSERT_EQ(values[kDim * i++], 1.0f) << key;
    }
    request.cursor = reply.cursor;
    ASSERT_OK(client.PullKeys("t", Range((calls * 1500) % kKeys, 1500)));
    ASSERT_LT(++calls, kKeys / 100);
  } while (!request.cursor.empty());
  EXPECT_TRUE(seen == model);
}

TEST_F(ColdRowsTest, AssigningOnePartOfAColdRowKeepsTheOthers) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  wire::VariableSpec spec = Spec("t");
  spec.optimizer = WireOptimizer("adagrad", 0.1);
  ASSERT_OK(client.Create({spec}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  const std::vector<int64_t> keys = Range(10, 500);  // evicted first
  EXPECT_THAT(*client.PullKeys("t", keys, "accumulator"), Each(1.1f));
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  ASSERT_OK(client.AssignKeys("t", keys, std::vector<float>(500 * kDim, 7)));
  EXPECT_THAT(*client.PullKeys("t", keys), Each(7.0f));
  EXPECT_THAT(*client.PullKeys("t", keys, "accumulator"), Each(2.1f));
}

// Sums of integers, so that every push lost or applied twice shows.
TEST_F(ColdRowsTest, PushesAndPullsOfSeveralThreadsMeetEvictions) {
  options_.snapshot_interval = absl::Milliseconds(50);
  options_.memory_wait = absl::Seconds(60);  // other processes may use the cores while rows must be
                                             // evicted
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient tool = Client();
  ASSERT_OK(tool.Create({Spec("t")}));
  constexpr int kThreads = 3;
  std::vector<Model> models(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      TestClient client = Joined(t);
      std::mt19937_64 random(static_cast<uint64_t>(t));
      for (int round = 0; round < 60; ++round) {
        const auto first = static_cast<int64_t>(random() % static_cast<uint64_t>(kKeys / 2));
        const std::vector<int64_t> keys = Range(first, kBatch);
        if (round % 2 == 0) {
          ASSERT_OK(client.PullKeys("t", keys));
        }
        ASSERT_OK(PushOnes(client, keys, models[static_cast<size_t>(t)]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Model all;
  for (const Model& model : models) {
    for (const auto& [key, count] : model) all[key] += count;
  }
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(tool, all));
  EXPECT_EQ(Info(tool).rows, static_cast<int64_t>(all.size()));
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient again = Client();
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(again, all));
}

TEST_F(ColdRowsTest, ADirectoryOfALargerBudgetIsServedWithinASmallerOne) {
  options_.memory_budget_bytes = 128 << 20;
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  EXPECT_EQ(Info(client).rows_in_memory, kKeys);
  options_.memory_budget_bytes = 16 << 20;
  for (int start = 0; start < 2; ++start) {
    ASSERT_NO_FATAL_FAILURE(Restart());
    TestClient again = Joined(0);
    ASSERT_NO_FATAL_FAILURE(ExpectHolds(again, model));
    ExpectCounts(again, model);
  }
  options_.memory_budget_bytes = 128 << 20;
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient large = Client();
  ASSERT_NO_FATAL_FAILURE(ExpectHolds(large, model));
  EXPECT_EQ(Info(large).rows_in_memory, kKeys);
}

TEST_F(ColdRowsTest, ACheckpointHasColdRowsAndIsRestoredByAsManyServersOrMore) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  wire::RestoreRequest restore;
  ASSERT_NO_FATAL_FAILURE(MakeCheckpoint(&restore));
  for (const int32_t servers : {1, 2}) {
    size_t rows = 0;
    for (int32_t index = 0; index < servers; ++index) {
      ASSERT_NO_FATAL_FAILURE(StartRestored(restore, servers, index));
      for (int start = 0; start < 2; ++start) {
        TestClient reader = Client();
        const wire::VariableInfo info = reader.Describe()->variables[0];
        Model here;
        for (const auto& [key, count] : model) {
          if (info.spec.bucket_ps[BucketOfKey(key, 16)] == index) here[key] = count;
        }
        EXPECT_EQ(info.shards[0].rows, static_cast<int64_t>(here.size()));
        ASSERT_NO_FATAL_FAILURE(ExpectHolds(reader, here));
        if (start == 0) rows += here.size();
        ASSERT_NO_FATAL_FAILURE(Restart());
      }
    }
    EXPECT_EQ(rows, model.size());
  }
}

TEST_F(ColdRowsTest, ADroppedTableLeavesNoColdRowsToOneOfItsName) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const int64_t before = Client().Describe()->memory_used_bytes;
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  Model model;
  ASSERT_NO_FATAL_FAILURE(PushAll(client, model));
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().drop_job(state, client.caller()); }));
  // Except the memory for the index of cold rows, which is freed with their files.
  EXPECT_LE(Client().Describe()->memory_used_bytes, before + options_.memory_budget_bytes / 16);
  TestClient again = Joined(0);
  ASSERT_OK(again.Create({Spec("t")}));
  EXPECT_THAT(*again.PullKeys("t", Range(0, 4000)), Each(0.0f));
  EXPECT_EQ(Info(again).rows, 0);
}

TEST_F(ColdRowsTest, WhereNothingCanLeaveAPushIsRefusedAndNotRecorded) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec("t")}));
  const int64_t room = options_.memory_budget_bytes - client.Describe()->memory_used_bytes;
  const int64_t messages = room - (1 << 20);
  ASSERT_OK(engine().AcquireMessage(messages));
  Model model;
  const absl::Status status = PushOnes(client, Range(0, 8000), model);
  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("new embedding rows")));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::MEMORY_BUDGET);
  EXPECT_EQ(client.Hello(client.caller().incarnation)->state.applied, 0);
  engine().ReleaseMessage(messages);
}

}  // namespace
}  // namespace cairn
