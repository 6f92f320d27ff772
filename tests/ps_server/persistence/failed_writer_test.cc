// A writer fails after it has taken changes out of stripes. No other writer stores or publishes
// those stripes without the changes.
#include <atomic>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/deadline.h"
#include "gmock/gmock.h"
#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "ps_server/engine/engine.h"
#include "ps_server/persistence/evictor.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/ps_server/watched_server.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);

class FailedWriterTest : public WatchedServerTest {
 protected:
  // Creates a table of `stripes` stripes with a row or more in each, by push 1 of a worker.
  void FillStripes(size_t stripes) {
    TestClient client(*service_, 0);
    ASSERT_OK(client.Hello());
    wire::VariableSpec spec = TableSpec("t", 1, WireOptimizer("sgd", 1));
    spec.bucket_ps.assign(stripes, 0);
    ASSERT_OK(client.Create({spec}));
    std::vector<int64_t> keys(20 * stripes);
    std::iota(keys.begin(), keys.end(), 0);
    ASSERT_OK(client.PushKeys("t", keys, std::vector<float>(keys.size(), 1)));
    variable_ = core_->registry.Find("job")->variables()->find("t")->second;
  }
  absl::StatusOr<uint32_t> Evict(EmbeddingStripe& stripe) {
    return EvictRows(*store_, stripe, EmbeddingStripe::Leave::kAny, UINT32_MAX);
  }
  // A stripe that no thread writes.
  EmbeddingStripe& FreeStripe() {
    uint32_t bucket = 0;
    while (!variable_->table()->stripe(bucket)->writing().TryLock()) ++bucket;
    EmbeddingStripe& free = *variable_->table()->stripe(bucket);
    free.writing().Unlock();
    return free;
  }
  // The worker's last push that the next start of the server has.
  int64_t PublishedSequence() {
    store_->before_write = nullptr;
    variable_ = nullptr;
    service_ = nullptr;
    core_ = nullptr;
    const std::unique_ptr<Engine> engine = Engine::Open(options_).value();
    TestClient client(engine->service(), 0);
    EXPECT_OK(client.Hello());
    return client.sequence;
  }

  std::shared_ptr<Variable> variable_;
};

TEST_F(FailedWriterTest, ASnapshotEndsAtAStripeThatAnEvictionCouldNotWrite) {
  ASSERT_NO_FATAL_FAILURE(FillStripes(2));
  bool first = true, evicts = false;
  store_->before_write = [&]() -> absl::Status {
    if (evicts) throw std::bad_alloc();
    if (!std::exchange(first, false)) return absl::OkStatus();
    evicts = true;
    EXPECT_THROW(Evict(FreeStripe()).IgnoreError(), std::bad_alloc);
    evicts = false;
    return absl::OkStatus();
  };
  EXPECT_THAT(
      core_->flusher.Flush(Flusher::Reach::kSynced),
      StatusIs(StatusCode::kFailedPrecondition, HasSubstr("an earlier write took changes")));
  EXPECT_FALSE(first);
  EXPECT_EQ(PublishedSequence(), 0);
}

TEST_F(FailedWriterTest, AnEvictionLeavesAStripeThatASnapshotCouldNotWrite) {
  ASSERT_NO_FATAL_FAILURE(FillStripes(1));
  store_->before_write = []() -> absl::Status { throw std::bad_alloc(); };
  EXPECT_FALSE(core_->flusher.Flush(Flusher::Reach::kSynced).ok());
  store_->before_write = nullptr;
  EXPECT_THAT(Evict(FreeStripe()).status(), StatusIs(StatusCode::kFailedPrecondition,
                                                     HasSubstr("an earlier write took changes")));
  EXPECT_GT(FreeStripe().row_count(), 0U);
}

// It writes in a pause of the snapshot, and the stripes that it gave away are not the snapshot's.
TEST_F(FailedWriterTest, ASnapshotEndsAfterAChangeOfRecordsThatFailedInItsPause) {
  constexpr uint32_t kStripes = 64;
  ASSERT_NO_FATAL_FAILURE(FillStripes(kStripes));
  std::thread change;
  std::atomic<bool> failed = false;
  const auto fail = [&] {
    for (uint32_t s = 0; s < kStripes; ++s) {
      EmbeddingStripe& stripe = *variable_->table()->stripe(s);
      const absl::MutexLock lock(&stripe.mutex());
      stripe.HandOver();
    }
    failed = true;
    return core_->flusher.Refuse(absl::ResourceExhaustedError("no memory for the map"));
  };
  const auto waiting = [&] {
    std::map<std::string, int64_t> counts;
    core_->waits.Count(counts);
    return counts["epoch"];
  };
  store_->before_write = [&] {
    if (!change.joinable()) {
      change = std::thread([&] { EXPECT_FALSE(core_->flusher.BetweenStripes(fail).ok()); });
    }
    const Deadline deadline = Deadline::In(kTimeout);
    while (waiting() < 2 && !failed && !deadline.Expired()) std::this_thread::yield();
    return absl::OkStatus();
  };
  EXPECT_THAT(core_->flusher.Flush(Flusher::Reach::kSynced),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("no memory for the map")));
  ASSERT_TRUE(change.joinable());
  change.join();
  EXPECT_EQ(PublishedSequence(), 0);
}

// A move's steps, which make updates wait, do not wait until a snapshot is written as a table. What
// fails then is not published either.
TEST_F(FailedWriterTest, OthersWriteWhileASnapshotIsSettled) {
  ASSERT_NO_FATAL_FAILURE(FillStripes(2));
  bool written = false;
  store_->before_settle = [&]() -> absl::Status {
    std::thread other([&] {
      EXPECT_OK(core_->flusher.BetweenStripes([&] {
        written = true;
        return absl::OkStatus();
      }));
    });
    other.join();
    return absl::OkStatus();
  };
  ASSERT_OK(core_->flusher.Flush(Flusher::Reach::kSynced));
  EXPECT_TRUE(written);
  TestClient client(*service_, 0);
  ASSERT_OK(client.Hello());
  ASSERT_OK(client.PushKeys("t", {1}, {1}));
  store_->before_settle = [&] {
    return core_->flusher.Refuse(absl::ResourceExhaustedError("no memory for the map"));
  };
  EXPECT_THAT(core_->flusher.Flush(Flusher::Reach::kSynced),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("no memory for the map")));
  store_->before_settle = nullptr;
  EXPECT_EQ(PublishedSequence(), 1);
}

}  // namespace
}  // namespace cairn
