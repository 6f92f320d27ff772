// Tables delete rows by age or by the table's size: the right rows and no others, in memory and on
// disk, whatever happens in the meantime; a key that returns gets a new row.
#include <atomic>
#include <barrier>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"
#include "ps_server/base/row_clock.h"
#include "ps_server/rows/row_ages.h"
#include "storage/stripe_store.h"
#include "tests/ps_server/counted_rows.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class RowDeletionTest : public ServerTest {
 protected:
  RowDeletionTest() {
    options_.snapshot_interval = absl::Hours(1);
    options_.row_rules_interval = absl::Hours(1);
    options_.row_clock = [this] { return absl::FromUnixSeconds(now_.load()); };
  }

  static wire::VariableSpec Spec(int64_t expire_after_seconds, int64_t max_rows, size_t buckets = 1,
                                 int64_t dim = 1) {
    wire::VariableSpec spec = TableSpec("t", dim, WireOptimizer("sgd", 1));
    spec.initializer.type = "zeros";
    spec.bucket_ps.assign(buckets, 0);
    wire::RowRules rules;
    rules.expire_after_seconds = expire_after_seconds;
    rules.max_rows = max_rows;
    spec.__set_row_rules(rules);
    return spec;
  }
  absl::Status KeepAt(int64_t seconds) {
    now_ = seconds;
    return KeepRowRules();
  }
  // Restarts the server; meanwhile sets how many updates every bucket has had.
  void SetUpdates(int64_t lifetime, uint32_t updates) {
    Stop();
    struct : StripeVisitor {
      absl::Status Header(const StripeId&, absl::Span<const Watermark>) override { return {}; }
      absl::Status Image(const StripeId&, absl::string_view) override { return {}; }
      absl::Status Rows(const StripeId&, const StoredRows&) override { return {}; }
      absl::Status Ages(const StripeId& id, absl::string_view bytes) override {
        ages.emplace_back(id, bytes);
        return {};
      }
      std::vector<std::pair<StripeId, std::string>> ages;
    } visitor;
    {
      const auto store = StripeStore::Open({.directory = options_.directory});
      ASSERT_OK(store);
      const std::vector<VariableRecord> variables = *(*store)->Variables();
      ASSERT_OK((*store)->LoadStripes(variables.at(0).id, visitor));
      for (const auto& [id, bytes] : visitor.ages) {
        RowAges ages(lifetime);
        ASSERT_OK(ages.Decode(bytes));
        const std::unique_ptr<StripeBatch> batch = (*store)->NewBatch(id);
        batch->PutAges(ages.Encode(updates));
        ASSERT_OK((*store)->Write(*batch));
      }
      ASSERT_OK((*store)->Close());
    }
    EXPECT_FALSE(visitor.ages.empty());
    Start();
  }
  // Every key with the first value of its row; checks that each occurs once.
  std::map<int64_t, float> Scanned() {
    std::map<int64_t, float> rows;
    wire::ScanRequest request;
    request.caller.job = "job";
    request.variable = "t";
    request.max_rows = 5000;
    do {
      wire::ScanReply reply;
      EXPECT_OK(CallStatus([&] { service().scan(reply, request); }));
      const auto keys = Values<int64_t>(reply.keys);
      const auto values = Values<float>(reply.values);
      for (size_t i = 0; i < keys.size(); ++i) {
        EXPECT_TRUE(rows.emplace(keys[i], values[i * values.size() / keys.size()]).second);
      }
      request.cursor = reply.cursor;
    } while (!request.cursor.empty());
    return rows;
  }

  std::atomic<int64_t> now_{1000000};  // seconds since 1970
};

TEST_F(RowDeletionTest, RowsNotPushedForTheirLifetimeExpireAndComeBackAnew) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(160, 0)}));
  ASSERT_OK(Push(client, {1, 2}));
  ASSERT_OK(client.AssignKeys("t", {3}, {30}));
  ASSERT_OK(KeepAt(1000));
  ASSERT_OK(Push(client, {2}));
  ASSERT_OK(client.AssignKeys("t", {4}, {40}));
  ASSERT_OK(KeepAt(1050));
  EXPECT_THAT(Pull(client, {1, 2, 3, 4}), ElementsAre(1, 2, 30, 40));  // of which the table keeps
                                                                       // nothing
  ASSERT_OK(KeepAt(1159));
  EXPECT_EQ(Info(client).rows, 4);
  ASSERT_OK(KeepAt(1160));
  EXPECT_THAT(Pull(client, {1, 2, 3, 4}), ElementsAre(0, 2, 0, 40));
  EXPECT_EQ(Info(client).rows, 2);
  ASSERT_OK(Push(client, {1}));
  EXPECT_THAT(Pull(client, {1}), ElementsAre(1));
  ASSERT_OK(KeepAt(1210));
  EXPECT_THAT(Pull(client, {1, 2, 3, 4}), ElementsAre(1, 0, 0, 0));
  EXPECT_EQ(Info(client).row_figures.expired, 4);
  EXPECT_THAT(Scanned(), ElementsAre(std::pair<const int64_t, float>(1, 1)));
}

TEST_F(RowDeletionTest, AgesOutliveARestart) {
  ASSERT_NO_FATAL_FAILURE(Start());
  {
    TestClient client = Joined(0);
    ASSERT_OK(client.Create({Spec(160, 0)}));
    ASSERT_OK(Push(client, {1}));
    ASSERT_OK(KeepAt(1000));
    ASSERT_OK(Push(client, {2}));
  }
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient client = Joined(0);
  ASSERT_OK(KeepAt(1100));
  ASSERT_OK(KeepAt(1160));
  EXPECT_THAT(Pull(client, {1, 2}), ElementsAre(0, 1));
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient again = Joined(0);
  EXPECT_THAT(Pull(again, {1, 2}), ElementsAre(0, 1));
  ASSERT_OK(KeepAt(1260));
  EXPECT_THAT(Pull(again, {1, 2}), ElementsAre(0, 0));
}

// A checkpoint is a state to go back to, however long ago it was made.
TEST_F(RowDeletionTest, TimeBetweenACheckpointAndItsRestoreDoesNotCount) {
  ASSERT_NO_FATAL_FAILURE(Start());
  wire::RestoreRequest restore;
  {
    TestClient client = Joined(0);
    ASSERT_OK(client.Create({Spec(160, 0)}));
    ASSERT_OK(Push(client, {1}));
    ASSERT_OK(KeepAt(1000));
    ASSERT_OK(Push(client, {2}));
    ASSERT_OK(KeepAt(1050));
    ASSERT_NO_FATAL_FAILURE(MakeCheckpoint(&restore));
  }
  now_ = 1000000;
  ASSERT_NO_FATAL_FAILURE(StartRestored(restore, 1, 0));
  ASSERT_OK(KeepAt(1000000));
  ASSERT_NO_FATAL_FAILURE(Restart());
  ASSERT_OK(KeepAt(1000109));
  TestClient client = Client();
  EXPECT_THAT(Pull(client, {1, 2}), ElementsAre(1, 1));
  ASSERT_OK(KeepAt(1000110));
  EXPECT_THAT(Pull(client, {1, 2}), ElementsAre(0, 1));
  ASSERT_OK(KeepAt(1000160));
  EXPECT_THAT(Pull(client, {1, 2}), ElementsAre(0, 0));
}

TEST_F(RowDeletionTest, AClockThatIsADayAheadForAMomentDeletesNoRows) {
  constexpr int64_t kStart = 1800000000;
  std::atomic<int64_t> monotonic = 0;
  const auto clock =
      std::make_shared<RowClock>([this] { return absl::FromUnixSeconds(now_.load()); },
                                 [&monotonic] { return absl::Seconds(monotonic.load()); });
  options_.row_clock = [clock] { return clock->Now(); };
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(3600, 0)}));
  ASSERT_OK(Push(client, {1, 2}));
  ASSERT_OK(KeepAt(kStart));
  for (const int64_t wrong : {86400, 86401}) {
    ++monotonic;
    ASSERT_OK(KeepAt(kStart + wrong));
  }
  ++monotonic;
  ASSERT_OK(KeepAt(kStart + 3));
  EXPECT_THAT(Pull(client, {1, 2}), ElementsAre(1, 1));
  monotonic += 3600;
  ASSERT_OK(KeepAt(kStart + 3603));
  EXPECT_THAT(Pull(client, {1, 2}), ElementsAre(0, 0));
  Stop();  // the clock ends before the server's fixture
}

TEST_F(RowDeletionTest, RowsThatAreNotPushedAnyMoreExpireThroughRestarts) {
  ASSERT_NO_FATAL_FAILURE(Start());
  {
    TestClient client = Joined(0);
    ASSERT_OK(client.Create({Spec(160, 0)}));
    ASSERT_OK(Push(client, {1}));
    ASSERT_OK(client.Flush());
    ASSERT_OK(KeepAt(1000));
  }
  for (const int64_t now : {1100, 1159}) {
    ASSERT_NO_FATAL_FAILURE(Restart());
    TestClient client = Joined(0);
    ASSERT_OK(KeepAt(now));
    EXPECT_THAT(Pull(client, {1}), ElementsAre(1)) << now;
  }
  ASSERT_OK(KeepAt(1160));
  TestClient client = Joined(0);
  EXPECT_THAT(Pull(client, {1}), ElementsAre(0));
}

TEST_F(RowDeletionTest, ATableThatIsTooLargeLosesTheRowsNotPushedForLongest) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(0, 160)}));
  for (int64_t key = 0; key < 160; ++key) ASSERT_OK(Push(client, {key}));
  ASSERT_OK(Push(client, {0}));
  ASSERT_OK(KeepRowRules());
  EXPECT_EQ(Info(client).rows, 160);
  const int64_t full = client.Describe()->memory_used_bytes;
  for (int64_t key = 160; key < 200; ++key) ASSERT_OK(Push(client, {key}));
  ASSERT_OK(KeepRowRules());
  // A sixteenth below the limit, so that deletion need not run after every few new rows.
  EXPECT_EQ(Info(client).rows, 150);
  EXPECT_EQ(Info(client).row_figures.crowded_out, 50);
  EXPECT_LT(client.Describe()->memory_used_bytes, full);
  for (int64_t key = 1; key <= 50; ++key) ASSERT_THAT(Pull(client, {key}), ElementsAre(0)) << key;
  for (int64_t key = 51; key < 200; ++key) ASSERT_THAT(Pull(client, {key}), ElementsAre(1)) << key;
  EXPECT_THAT(Pull(client, {0}), ElementsAre(2));
}

// A deleted row was pushed before all remaining rows, and stays deleted: each later push counts
// once.
TEST_F(RowDeletionTest, DeletionsAndPushesSurviveACrashTogether) {
  ASSERT_NO_FATAL_FAILURE(Start());
  auto client = std::make_unique<TestClient>(Joined(0));
  ASSERT_OK(client->Create({Spec(0, 200, 2)}));
  std::map<int64_t, int> model;  // pushes since the row was created
  std::map<int64_t, int> last;   // step of its last push
  std::vector<wire::PushRequest> sent;
  std::mt19937_64 random(17);
  int64_t deleted = 0;
  for (int step = 1; step <= 160; ++step) {
    std::vector<int64_t> keys;
    for (int i = 0; i < 20; ++i) keys.push_back(static_cast<int64_t>(random() % 400));
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    wire::PushRequest push = client->NextRequest();
    push.items = {IdItem("t", wire::Selection::KEYS, keys, std::vector<float>(keys.size(), -1))};
    sent.push_back(push);
    ASSERT_OK(client->Send(push));
    for (const int64_t key : keys) ++model[key], last[key] = step;
    if (step % 7 == 0) {
      ASSERT_OK(KeepRowRules());
      std::array<int, 2> oldest_kept{step, step};
      std::array<int, 2> newest_gone{0, 0};
      for (auto at = model.begin(); at != model.end();) {
        const uint32_t bucket = BucketOfKey(at->first, 2);
        const float value = Pull(*client, {at->first})[0];
        if (value == 0) {
          newest_gone[bucket] = std::max(newest_gone[bucket], last[at->first]);
          at = model.erase(at);
          ++deleted;
          continue;
        }
        ASSERT_EQ(value, at->second) << at->first;
        oldest_kept[bucket] = std::min(oldest_kept[bucket], last[at->first]);
        ++at;
      }
      for (int b : {0, 1}) ASSERT_LE(newest_gone[b], oldest_kept[b]);
      ASSERT_EQ(Info(*client).rows, static_cast<int64_t>(model.size()));
    }
    if (step % 11 == 0) {
      ASSERT_OK(client->Flush());
    }
    if (step % 20 != 0) continue;
    ASSERT_NO_FATAL_FAILURE(CrashAndSendAgain(sent, /*some_lost=*/false, client));
    const std::map<int64_t, float> rows = Scanned();
    ASSERT_EQ(rows.size(), model.size());
    for (const auto& [key, count] : model) ASSERT_EQ(rows.at(key), count) << key;
  }
  EXPECT_GT(deleted, 100);
}

TEST_F(RowDeletionTest, RowsOnDiskAloneAreDeletedToo) {
  constexpr int64_t kDim = 64;
  constexpr int64_t kKeys = 120000;
  constexpr int64_t kBatch = 2000;
  constexpr int64_t kLimit = 80000;
  options_.memory_budget_bytes = 16 << 20;
  options_.memory_wait = absl::Milliseconds(1);
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({Spec(0, kLimit, 16, kDim)}));
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    ASSERT_OK(Push(client, Range(first, kBatch), kDim));
  }
  EXPECT_LT(Info(client).rows_in_memory, kLimit * 3 / 4);
  ASSERT_OK(KeepRowRules());
  const int64_t rows = Info(client).rows;
  EXPECT_LE(rows, kLimit);
  EXPECT_GT(rows, kLimit * 8 / 10);  // buckets differ in size
  EXPECT_EQ(Info(client).row_figures.crowded_out, kKeys - rows);
  for (int start = 0; start < 2; ++start) {
    TestClient reader = Client();
    EXPECT_EQ(Info(reader).rows, rows);
    for (int64_t first = 0; first < 30000; first += kBatch) {
      ASSERT_THAT(Pull(reader, Range(first, kBatch)), Each(0)) << first;
    }
    for (int64_t first = kKeys - 60000; first < kKeys; first += kBatch) {
      ASSERT_THAT(Pull(reader, Range(first, kBatch)), Each(1)) << first;
    }
    const std::map<int64_t, float> scanned = Scanned();
    EXPECT_EQ(static_cast<int64_t>(scanned.size()), rows);
    for (const auto& [key, value] : scanned) ASSERT_EQ(value, 1) << key;
    ASSERT_NO_FATAL_FAILURE(Restart());
  }
  // The deleted rows return with their initial values, while other rows are on disk.
  TestClient again = Joined(0);
  ASSERT_OK(Push(again, Range(0, kBatch), kDim));
  ASSERT_OK(Push(again, Range(kKeys - kBatch, kBatch), kDim));
  EXPECT_THAT(Pull(again, Range(0, kBatch)), Each(1));
  EXPECT_THAT(Pull(again, Range(kKeys - kBatch, kBatch)), Each(2));
  EXPECT_EQ(Info(again).rows, rows + kBatch);
}

// The update counts of the buckets jump on disk, because that many updates would take days.
TEST_F(RowDeletionTest, RowsExpireInTimeHoweverManyUpdatesTheirBucketHas) {
  constexpr int64_t kDim = 64;
  constexpr int64_t kLifetime = 160000;
  options_.memory_budget_bytes = 16 << 20;
  options_.memory_wait = absl::Milliseconds(1);
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_OK(Client().Create({Spec(kLifetime, 0, 4, kDim)}));
  const auto push = [&](int64_t first, int64_t end, int64_t now) {
    TestClient client = Client();
    for (; first < end; first += 2000) ASSERT_OK(Push(client, Range(first, 2000), kDim));
    ASSERT_OK(KeepAt(now));
  };
  const auto rows_at = [&](int64_t now) {
    EXPECT_OK(KeepAt(now));
    TestClient client = Client();
    return Info(client).rows;
  };
  ASSERT_NO_FATAL_FAILURE(push(0, 2000, 1000));
  ASSERT_NO_FATAL_FAILURE(SetUpdates(kLifetime, UpdateNumber::kFirstRepeated + 5));
  ASSERT_NO_FATAL_FAILURE(push(2000, 20000, 20000));
  ASSERT_NO_FATAL_FAILURE(push(20000, 60000, 40000));
  TestClient before = Client();
  EXPECT_LT(Info(before).rows_in_memory, 55000);
  ASSERT_NO_FATAL_FAILURE(
      SetUpdates(kLifetime, UpdateNumber::kFirstRepeated + RowAges::kParkedAge + 1000));
  EXPECT_EQ(rows_at(50000), 60000);
  ASSERT_NO_FATAL_FAILURE(push(60000, 62000, 60000));
  // Then the first numbers are used again.
  ASSERT_NO_FATAL_FAILURE(SetUpdates(kLifetime, UpdateNumber::kLast - 1));
  for (int i = 0; i < 60; ++i) ASSERT_NO_FATAL_FAILURE(push(62000, 64000, 70000));
  EXPECT_EQ(rows_at(kLifetime + 999), 64000);
  EXPECT_EQ(rows_at(kLifetime + 1000), 62000);
  EXPECT_EQ(rows_at(kLifetime + 20000), 44000);
  EXPECT_EQ(rows_at(kLifetime + 40000), 4000);
  EXPECT_EQ(rows_at(kLifetime + 60000), 2000);
  TestClient client = Client();
  EXPECT_THAT(Pull(client, Range(62000, 2000)), Each(60));
  EXPECT_THAT(Pull(client, Range(58000, 2000)), Each(0));
}

// Rows continuously leave memory, come back and are deleted; continuously pushed rows stay.
TEST_F(RowDeletionTest, ThreadsThatPushPullAndScanMeetDeletionsAndEvictions) {
  constexpr int64_t kDim = 64;
  constexpr int64_t kHot = 2000;
  constexpr int kRounds = 60;
  options_.memory_budget_bytes = 16 << 20;
  options_.memory_wait = absl::Seconds(30);
  options_.row_rules_interval = absl::Milliseconds(1);
  options_.snapshot_interval = absl::Milliseconds(20);
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient tool = Client();
  ASSERT_OK(tool.Create({Spec(0, 80000, 16, kDim)}));
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  // If one thread were far behind the other, its rows would be the oldest.
  std::barrier together(2);
  std::vector<std::thread> threads;
  for (int32_t w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      TestClient client = Joined(w);
      for (int64_t round = 0; round < kRounds; ++round) {
        if (round % 8 == 0) together.arrive_and_wait();
        failures += !Push(client, Range(w * kHot, kHot), kDim).ok();
        failures += !Push(client, Range(1000000 + (2 * round + w) * 2000, 2000), kDim).ok();
      }
    });
  }
  std::thread reader([&] {
    TestClient client = Client();
    std::map<int64_t, float> hot;
    while (!stop.load()) {
      for (const float value : Pull(client, Range(1000000, 2000))) failures += value > 1;
      const std::map<int64_t, float> rows = Scanned();
      for (const int64_t key : Range(0, 2 * kHot)) {
        const auto row = rows.find(key);
        if (row == rows.end()) continue;
        // A new row has 0 until its first push is applied.
        failures += row->second < hot[key] || row->second > kRounds;
        hot[key] = row->second;
      }
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  reader.join();
  EXPECT_EQ(failures.load(), 0);
  ASSERT_OK(KeepRowRules());
  for (int start = 0; start < 2; ++start) {
    TestClient client = Client();
    EXPECT_LE(Info(client).rows, 80000);
    for (int64_t first = 0; first < 2 * kHot; first += kHot) {
      EXPECT_THAT(Pull(client, Range(first, kHot)), Each(kRounds)) << first;
    }
    EXPECT_EQ(static_cast<int64_t>(Scanned().size()), Info(client).rows);
    if (start == 0) {
      EXPECT_GT(Info(client).row_figures.crowded_out, 100000);
    }
    ASSERT_NO_FATAL_FAILURE(Restart());
  }
}

TEST_F(RowDeletionTest, ADeletedKeyIsAdmittedAnew) {
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Joined(0);
  wire::VariableSpec spec = Spec(160, 0);
  spec.row_rules.admit_after_pushes = 2;
  ASSERT_OK(client.Create({spec}));
  for (int push = 0; push < 2; ++push) ASSERT_OK(Push(client, {1}));
  EXPECT_THAT(Pull(client, {1}), ElementsAre(1));
  ASSERT_OK(KeepAt(1000));
  ASSERT_OK(KeepAt(1160));
  EXPECT_EQ(Info(client).rows, 0);
  ASSERT_OK(Push(client, {1}));
  EXPECT_THAT(Pull(client, {1}), ElementsAre(0));
  ASSERT_OK(Push(client, {1}));
  EXPECT_THAT(Pull(client, {1}), ElementsAre(1));
}

}  // namespace
}  // namespace cairn
