// Cold rows are read while the other rows of the same call are looked up and copied. Rows that
// leave memory or come back in the meantime are neither lost nor counted twice.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/hash.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"
#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "ps_server/persistence/evictor.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/ps_server/watched_server.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kDim = 4;
constexpr uint32_t kBuckets = 4;
constexpr uint32_t kLast = kBuckets - 1;  // the last bucket in the order of lookups
constexpr absl::Duration kTimeout = absl::Seconds(60);

using Keys = std::vector<int64_t>;

// Keys of one bucket.
Keys KeysOf(uint32_t bucket, size_t count) {
  Keys keys;
  for (int64_t key = 1; keys.size() < count; ++key) {
    if (BucketOfKey(key, kBuckets) == bucket) keys.push_back(key);
  }
  return keys;
}

Keys operator+(Keys a, const Keys& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class ColdReadsTest : public WatchedServerTest {
 protected:
  void SetUp() override {
    options_.memory_wait = absl::Milliseconds(1);
    ASSERT_NO_FATAL_FAILURE(WatchedServerTest::SetUp());
    client_ = std::make_unique<TestClient>(*service_, 0);
    ASSERT_OK(client_->Hello());
    wire::VariableSpec spec = TableSpec("t", kDim, WireOptimizer("sgd", 1));
    spec.initializer.type = "zeros";
    spec.bucket_ps.assign(kBuckets, 0);
    ASSERT_OK(client_->Create({spec}));
    variable_ = core_->registry.Find("job")->variables()->find("t")->second;
    for (const int64_t key : all_) begun_[key] = done_[key] = 0;
  }

  HostedTable& table() { return *variable_->table(); }
  EmbeddingStripe& stripe(uint32_t bucket) { return *table().stripe(bucket); }
  // Evicts the bucket's rows from memory.
  void Evict(uint32_t bucket) {
    const auto evicted =
        EvictRows(*store_, stripe(bucket), EmbeddingStripe::Leave::kAny, UINT32_MAX);
    ASSERT_OK(evicted);
    table().CountRows(-int64_t{*evicted}, *evicted);
    variable_->GiveBack(*evicted * table().layout().row_charge());
  }
  // Adds 1 to every number of each key's row.
  absl::Status Add(TestClient& client, const Keys& keys) {
    for (const int64_t key : keys) ++begun_[key];
    const std::vector<float> ones(keys.size() * static_cast<size_t>(kDim), -1);
    RETURN_IF_ERROR(client.PushKeys("t", keys, ones).status());
    for (const int64_t key : keys) ++done_[key];
    return absl::OkStatus();
  }
  // Creates every row; only those of the last bucket are in memory.
  void Fill() {
    ASSERT_OK(Add(*client_, all_));
    for (uint32_t bucket = 0; bucket < kLast; ++bucket) ASSERT_NO_FATAL_FAILURE(Evict(bucket));
  }
  // The rows contain every completed push, and perhaps some of the running ones.
  void ExpectPulls(TestClient& client, const Keys& keys) {
    std::vector<int> least;
    for (const int64_t key : keys) least.push_back(done_[key]);
    const auto rows = client.PullKeys("t", keys);
    ASSERT_OK(rows);
    for (size_t i = 0; i < keys.size(); ++i) {
      const float* const row = rows->data() + i * static_cast<size_t>(kDim);
      ASSERT_GE(row[0], static_cast<float>(least[i])) << keys[i];
      ASSERT_LE(row[0], static_cast<float>(begun_[keys[i]])) << keys[i];
      ASSERT_EQ(std::count(row, row + kDim, row[0]), kDim) << keys[i];
    }
  }
  void ExpectCounts() {
    EXPECT_EQ(table().row_count(), static_cast<int64_t>(all_.size()));
    int64_t in_memory = 0, cold = 0;
    for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
      in_memory += stripe(bucket).row_count();
      cold += stripe(bucket).cold_rows();
    }
    EXPECT_EQ(table().rows_in_memory(), in_memory);
    EXPECT_EQ(table().cold_rows(), cold);
  }
  // Makes the call while the last bucket is locked, and unlocks it once the cold rows are read. If
  // the call reads rows itself, it has no other work left by then, so helpers wait for that.
  void CallBesideRead(const std::function<void()>& call, bool reads_itself);

  std::unique_ptr<TestClient> client_;
  std::shared_ptr<Variable> variable_;
  const Keys first_ = KeysOf(0, 100), second_ = KeysOf(1, 50), third_ = KeysOf(2, 49);
  const Keys last_ = KeysOf(kLast, 40);
  const Keys all_ = last_ + third_ + second_ + first_;
  // By key: the number of pushes of Add.
  std::map<int64_t, std::atomic<int>> begun_, done_;
};

void ColdReadsTest::CallBesideRead(const std::function<void()>& call, bool reads_itself) {
  StopFlag begun, alone;
  std::atomic<int> begun_early = 0, in_vain = 0;
  std::thread::id caller;
  store_->before_read = [&](absl::Span<const ColdKey>) {
    if (std::this_thread::get_id() == caller) return alone.Stop();
    begun.Stop();
    if (reads_itself && !alone.WaitFor(kTimeout)) ++in_vain;
  };
  stripe(kLast).mutex().Lock();
  std::thread thread([&] {
    caller = std::this_thread::get_id();
    call();
  });
  begun_early = begun.WaitFor(kTimeout);
  stripe(kLast).mutex().Unlock();
  thread.join();
  store_->before_read = nullptr;
  EXPECT_EQ(begun_early, 1) << "nothing was read before the last key was looked up";
  EXPECT_EQ(in_vain, 0) << "the call did not go on while others read";
}

TEST_F(ColdReadsTest, RowsInMemoryAreCopiedWhileColdOnesAreRead) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const auto pull = [&] { ExpectPulls(*client_, all_); };
  CallBesideRead(pull, /*reads_itself=*/true);
  ExpectCounts();
}

TEST_F(ColdReadsTest, APushLooksItsOtherKeysUpWhileColdRowsAreRead) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const auto push = [&] { EXPECT_OK(Add(*client_, all_)); };
  CallBesideRead(push, /*reads_itself=*/true);
  ExpectPulls(*client_, all_);
  ExpectCounts();
}

// The push has begun to read when it is refused; when it returns, no read is running.
TEST_F(ColdReadsTest, APushThatGetsNoMemoryChangesNothingAndEndsItsReads) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  std::atomic<int> reads = 0;
  store_->after_read = [&](absl::Span<const ColdKey>) { ++reads; };
  core_->budget.Force(core_->budget.limit_bytes());
  const std::vector<float> ones(all_.size() * static_cast<size_t>(kDim), -1);
  int at_end = 0;
  const auto push = [&] {
    EXPECT_THAT(client_->PushKeys("t", all_, ones),
                StatusIs(StatusCode::kResourceExhausted, HasSubstr("embedding rows")));
    at_end = reads;
  };
  CallBesideRead(push, /*reads_itself=*/false);
  EXPECT_EQ(reads, at_end);
  store_->after_read = nullptr;
  core_->budget.Release(core_->budget.limit_bytes());
  ASSERT_OK(client_->Hello(client_->caller().incarnation));
  EXPECT_EQ(client_->sequence, 1);
  ExpectPulls(*client_, all_);
  ASSERT_OK(Add(*client_, all_));
  ExpectPulls(*client_, all_);
  ExpectCounts();
}

// The rows on disk are out of date: some rows came to memory and left again, others came and
// stayed, each with another push.
TEST_F(ColdReadsTest, RowsThatComeAndLeaveWhileTheyAreReadAreAsTheLastPushMadeThem) {
  TestClient other(*service_, 1);
  ASSERT_OK(other.Hello());
  for (const bool pushes : {false, true}) {
    SCOPED_TRACE(pushes ? "push" : "pull");
    ASSERT_NO_FATAL_FAILURE(Fill());
    std::atomic<bool> changed = false;
    store_->after_read = [&](absl::Span<const ColdKey> keys) {
      if (keys[0].id.stripe != 0 || changed.exchange(true)) return;
      // In another thread, since the reading thread may be inside a call.
      std::thread([&] {
        ASSERT_OK(Add(other, first_ + second_));
        ASSERT_NO_FATAL_FAILURE(Evict(0));
      }).join();
    };
    if (pushes) {
      ASSERT_OK(Add(*client_, all_));
    } else {
      const auto rows = client_->PullKeys("t", first_ + second_);
      ASSERT_OK(rows);
      EXPECT_THAT(*rows, Each(2));
    }
    store_->after_read = nullptr;
    EXPECT_TRUE(changed);
    ASSERT_NO_FATAL_FAILURE(ExpectPulls(*client_, all_));
    ExpectCounts();
  }
}

// A row's address from the lookup is invalid once the row has left memory.
TEST_F(ColdReadsTest, APushFindsRowsThatLeaveWhileItReadsOthers) {
  ASSERT_NO_FATAL_FAILURE(Fill());
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> left = false;
  store_->before_read = [&](absl::Span<const ColdKey>) {
    // No further lookup follows.
    if (std::this_thread::get_id() != caller || left.exchange(true)) return;
    ASSERT_NO_FATAL_FAILURE(Evict(kLast));
  };
  ASSERT_OK(Add(*client_, all_));
  store_->before_read = nullptr;
  EXPECT_TRUE(left);
  ExpectPulls(*client_, all_);
  ExpectCounts();
}

TEST_F(ColdReadsTest, PullsSeeEveryPushThatIsDoneWhileRowsComeAndGo) {
  constexpr int kPushes = 150;
  ASSERT_NO_FATAL_FAILURE(Fill());
  std::atomic<int> pushing = 2;
  std::vector<std::thread> threads;
  for (int worker = 1; worker <= 2; ++worker) {
    threads.emplace_back([&, worker] {
      TestClient client(*service_, worker);
      EXPECT_OK(client.Hello());
      std::mt19937 random(static_cast<uint32_t>(worker));
      for (int push = 0; push < kPushes; ++push) {
        Keys keys = all_;
        std::shuffle(keys.begin(), keys.end(), random);
        keys.resize(keys.size() / 2);
        EXPECT_OK(Add(client, keys));
      }
      --pushing;
    });
    threads.emplace_back([&] {
      TestClient client(*service_, -1);
      while (pushing > 0) ASSERT_NO_FATAL_FAILURE(ExpectPulls(client, all_));
    });
  }
  for (uint32_t bucket = 0; pushing > 0; bucket = (bucket + 1) % kBuckets) Evict(bucket);
  for (std::thread& thread : threads) thread.join();
  ExpectPulls(*client_, all_);
  ExpectCounts();
}

}  // namespace
}  // namespace cairn
