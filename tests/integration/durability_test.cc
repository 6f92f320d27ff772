// What real cairn-ps processes keep: everything after SIGTERM, every acknowledged push after kill
// -9 under `log` and `log_sync`, a consistent state under `snapshot`. SIGKILL runs no destructor
// and flushes nothing, so only data that the operating system already held can come back.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/hash.h"
#include "tests/integration/server_process_fixture.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

// A stripe holds 256 KiB of values, which is 64 rows of 1024, so this shape has two stripes.
const std::vector<int64_t> kTwoStripes = {100, 1024};
constexpr size_t kRowWidth = 1024;
constexpr size_t kFirstStripe = 64 * kRowWidth;
constexpr size_t kElements = 100 * kRowWidth;
constexpr absl::Duration kTimeout = absl::Seconds(60);

std::vector<float> NoisyGradient(size_t size, uint64_t seed) {
  std::vector<float> gradient(size);
  for (size_t i = 0; i < size; ++i) {
    gradient[i] = static_cast<float>(MixBits(seed << 32 | i) >> 40) * 0x1p-24f - 0.5f;
  }
  return gradient;
}

std::vector<int64_t> Iota(int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Every value and slot of every variable as bytes, with their names, versions and row counts.
std::vector<std::string> Everything(TestClient& client) {
  std::vector<std::string> all;
  const absl::StatusOr<wire::DescribeReply> described = client.Describe();
  EXPECT_OK(described);
  if (!described.ok()) return all;
  for (const wire::VariableInfo& info : described->variables) {
    std::vector<std::string> slots = info.slots;
    slots.insert(slots.begin(), "");
    for (const std::string& slot : slots) {
      wire::PullItem item;
      item.variable = info.spec.name;
      item.slot = slot;
      if (info.spec.kind == wire::VariableKind::EMBEDDING) {
        item.selection = wire::Selection::KEYS;
        item.ids = PayloadOf(Iota(5000));
      }
      const absl::StatusOr<wire::PulledItem> pulled = client.PullItem(item);
      EXPECT_OK(pulled);
      if (!pulled.ok()) return all;
      all.push_back(absl::StrCat(
          item.variable, "/", slot, " version ", pulled->version, " rows ", info.shards[0].rows,
          " hash ",
          HashBytes({reinterpret_cast<const char*>(pulled->values.data()), pulled->values.size()}),
          " bytes ", pulled->values.size()));
    }
  }
  return all;
}

class SigtermTest : public ServerProcessTest {
 protected:
  // A dense variable and a table for every optimizer.
  static std::vector<wire::VariableSpec> EveryOptimizer() {
    const std::pair<const char*, std::map<std::string, double>> kinds[] = {
        {"sgd", {{"momentum", 0.9}, {"nesterov", 1}}},
        {"adagrad", {}},
        {"adadelta", {}},
        {"rmsprop", {{"momentum", 0.9}, {"centered", 1}}},
        {"adam", {{"amsgrad", 1}}},
        {"adamw", {}},
        {"adamax", {}},
        {"nadam", {}},
        {"lazy_adam", {}},
        {"ftrl", {}},
        {"lion", {}}};
    std::vector<wire::VariableSpec> specs;
    for (const auto& [type, arguments] : kinds) {
      const wire::Optimizer optimizer = WireOptimizer(type, 0.01, arguments);
      specs.push_back(DenseSpec(absl::StrCat("dense/", type), kTwoStripes, optimizer));
      specs.back().initializer.type = "normal";
      specs.push_back(TableSpec(absl::StrCat("table/", type), 7, optimizer));
    }
    return specs;
  }

  static void PushToAll(TestClient& client, const std::vector<wire::VariableSpec>& specs,
                        uint64_t step) {
    wire::PushRequest request = client.NextRequest();
    for (const wire::VariableSpec& spec : specs) {
      if (spec.kind == wire::VariableKind::DENSE) {
        request.items.push_back(WholeItem(spec.name, NoisyGradient(kElements, step)));
        continue;
      }
      std::vector<int64_t> keys = Iota(500);
      for (int64_t& key : keys) key = key * static_cast<int64_t>(step) + 3;
      request.items.push_back(
          IdItem(spec.name, wire::Selection::KEYS, keys, NoisyGradient(keys.size() * 7, step)));
    }
    ASSERT_OK(client.Send(request));
  }
};

// `off` keeps nothing before a clean end, and neither does `snapshot` here, whose first snapshot
// comes after an hour: both depend on the write at SIGTERM.
TEST_F(SigtermTest, ARestartRestoresEveryBitUnderEveryDurability) {
  const std::vector<wire::VariableSpec> specs = EveryOptimizer();
  for (const char* durability : {"off", "snapshot", "log", "log_sync"}) {
    SCOPED_TRACE(durability);
    options_.durability = durability;
    options_.data_dir = temp_.Join(durability);
    options_.flags = {"--snapshot_interval_seconds=3600"};
    ASSERT_NO_FATAL_FAILURE(Start());
    std::vector<std::string> before;
    {
      const auto worker = Connect(0);
      ASSERT_OK(worker->client.Create(specs));
      for (uint64_t step = 1; step <= 3; ++step) {
        ASSERT_NO_FATAL_FAILURE(PushToAll(worker->client, specs, step));
      }
      before = Everything(worker->client);
      EXPECT_GE(before.size(), specs.size() * 2);
    }
    ASSERT_NO_FATAL_FAILURE(Terminate());
    ASSERT_NO_FATAL_FAILURE(Start());
    EXPECT_EQ(Everything(Connect()->client), before);
    const auto again = Connect(0);
    EXPECT_EQ(again->client.sequence, 3);  // it continues where it was
    ASSERT_NO_FATAL_FAILURE(Terminate());
  }
}

// Workers that push ones as fast as possible, so that each value is the exact number of pushes in
// it.
class KillTest : public ServerProcessTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr int32_t kWorkers = 4;
  static constexpr int64_t kSharedKey = 1 << 20;

  struct Worker {
    int64_t sent = 0;  // the highest sequence sent
    int64_t acknowledged = 0;
  };

  static std::vector<wire::VariableSpec> Specs() {
    wire::VariableSpec table = TableSpec("table", 4, WireOptimizer("sgd", 1));
    table.initializer.type = "zeros";
    return {DenseSpec("dense", kTwoStripes, WireOptimizer("sgd", 1)), table};
  }

  // Adds 1 to all of "dense", to the worker's own row and to the shared row, and creates a row.
  static absl::Status PushOnes(TestClient& client, int32_t worker) {
    wire::PushRequest request = client.NextRequest();
    request.items.push_back(WholeItem("dense", std::vector<float>(kElements, -1)));
    request.items.push_back(IdItem("table", wire::Selection::KEYS,
                                   {worker, kSharedKey, RowOf(worker, client.sequence)},
                                   std::vector<float>(12, -1)));
    return client.Send(request).status();
  }
  static int64_t RowOf(int32_t worker, int64_t sequence) {
    return (int64_t{worker} + 2) << 32 | sequence;
  }

  // Pushes until the server is killed.
  void Push(int32_t index) {
    const auto connection = Connect(index);
    Worker& worker = workers_[index];
    // Sequences sent again are those from before the crash.
    EXPECT_GE(connection->client.sequence, worker.acknowledged);
    for (absl::Status status; status.ok();) {
      worker.sent = std::max(worker.sent, connection->client.sequence + 1);
      status = PushOnes(connection->client, index);
      absl::MutexLock lock(&mutex_);
      if (status.ok()) worker.acknowledged = connection->client.sequence;
      EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    }
  }

  // Every worker pushes; the server is killed when each has `pushes` further acknowledgements.
  void PushAndKill(int64_t pushes) {
    std::vector<std::thread> threads;
    std::vector<int64_t> targets;
    for (const Worker& worker : workers_) targets.push_back(worker.acknowledged + pushes);
    for (int32_t i = 0; i < kWorkers; ++i) threads.emplace_back(&KillTest::Push, this, i);
    const auto reached = [&] {
      for (int32_t i = 0; i < kWorkers; ++i) {
        if (workers_[i].acknowledged < targets[i]) return false;
      }
      return true;
    };
    {
      absl::MutexLock lock(&mutex_);
      EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&reached), kTimeout)) << "slow pushes";
    }
    server_->Kill();
    for (std::thread& thread : threads) thread.join();
  }

  float Sum(bool acknowledged) const {
    int64_t sum = 0;
    for (const Worker& worker : workers_) sum += acknowledged ? worker.acknowledged : worker.sent;
    return static_cast<float>(sum);
  }

  // Every acknowledged push is present, and no push that was never sent.
  void ExpectAcknowledged() {
    const auto tool = Connect();
    EXPECT_THAT(*tool->client.Pull("dense"), Each(::testing::AllOf(Ge(Sum(true)), Le(Sum(false)))));
    EXPECT_THAT(*tool->client.PullKeys("table", {kSharedKey}),
                Each(::testing::AllOf(Ge(Sum(true)), Le(Sum(false)))));
    for (int32_t i = 0; i < kWorkers; ++i) {
      const auto acknowledged = static_cast<float>(workers_[i].acknowledged);
      EXPECT_THAT(
          *tool->client.PullKeys("table", {i}),
          Each(::testing::AllOf(Ge(acknowledged), Le(static_cast<float>(workers_[i].sent)))));
      std::vector<int64_t> rows;
      for (int64_t s = 1; s <= workers_[i].acknowledged; ++s) rows.push_back(RowOf(i, s));
      EXPECT_THAT(*tool->client.PullKeys("table", rows), Each(1.0f));
    }
  }

  // Sends the pushes again that the server reports missing; afterwards each push is present exactly
  // once.
  void ReplayAndExpectExactly() {
    for (int32_t i = 0; i < kWorkers; ++i) {
      const auto connection = Connect(i);
      EXPECT_GE(connection->client.sequence, workers_[i].acknowledged);
      while (connection->client.sequence < workers_[i].sent) {
        ASSERT_OK(PushOnes(connection->client, i));
      }
      workers_[i].acknowledged = workers_[i].sent;
      const auto tool = Connect();
      EXPECT_THAT(*tool->client.PullKeys("table", {i}), Each(static_cast<float>(workers_[i].sent)));
    }
    const auto tool = Connect();
    EXPECT_THAT(*tool->client.Pull("dense"), Each(Sum(false)));
    EXPECT_THAT(*tool->client.PullKeys("table", {kSharedKey}), Each(Sum(false)));
    const auto described = tool->client.Describe();
    ASSERT_OK(described);
    for (const wire::VariableInfo& info : described->variables) {
      EXPECT_EQ(static_cast<float>(info.shards[0].version), Sum(false)) << info.spec.name;
    }
  }

  absl::Mutex mutex_;  // while threads push: guards `acknowledged`
  Worker workers_[kWorkers];
};

TEST_P(KillTest, NoAcknowledgedPushIsLostInTheMiddleOfConcurrentPushes) {
  options_.durability = GetParam();
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(Start());
    ASSERT_OK(Connect()->client.Create(Specs()));
    ASSERT_NO_FATAL_FAILURE(PushAndKill(8));
    ASSERT_NO_FATAL_FAILURE(Start());
    ASSERT_NO_FATAL_FAILURE(ExpectAcknowledged());
    ASSERT_NO_FATAL_FAILURE(ReplayAndExpectExactly());
    server_->Kill();
  }
}

INSTANTIATE_TEST_SUITE_P(Durability, KillTest, ::testing::Values("log", "log_sync"),
                         [](const auto& info) { return std::string(info.param); });

// One worker under `snapshot`, with snapshots as fast as the disk allows, so that kills fall inside
// them. All elements of the variable change alike, so one undisturbed run gives the only states
// that any stripe may be in.
class SnapshotKillTest : public ServerProcessTest {
 protected:
  static constexpr int64_t kSteps = 3000;
  static constexpr int kKills = 6;

  struct State {
    std::vector<float> parts;  // value, then slots
    bool operator==(const State&) const = default;
  };

  static std::vector<float> Gradient(int64_t step) {
    return std::vector<float>(kElements, 0.1f * static_cast<float>(step % 7 - 3) + 0.01f);
  }
  static wire::VariableSpec Spec() {
    return DenseSpec("w", kTwoStripes, WireOptimizer("adam", 0.01, {{"amsgrad", 1}}));
  }
  void ReadSlots(TestClient& client) {
    const auto described = client.Describe();
    ASSERT_OK(described);
    slots_ = described->variables[0].slots;
    slots_.insert(slots_.begin(), "");
  }
  // state[k] is the state after k pushes.
  void MakeReference() {
    options_.durability = "off";
    options_.data_dir = temp_.Join("reference");
    ASSERT_NO_FATAL_FAILURE(Start());
    const auto worker = Connect(0);
    ASSERT_OK(worker->client.Create({Spec()}));
    ASSERT_NO_FATAL_FAILURE(ReadSlots(worker->client));
    for (int64_t step = 0; step <= kSteps; ++step) {
      if (step > 0) {
        ASSERT_OK(worker->client.Push("w", Gradient(step)));
      }
      State state;
      for (const std::string& slot : slots_) {
        state.parts.push_back(worker->client.PullRows("w", {0}, slot)->at(0));
      }
      reference_.push_back(state);
    }
    server_->Kill();
  }

  // Pushes, up to number `last`, until the server is killed: after `pushes` acknowledgements and,
  // if `after_epoch`, a snapshot.
  void PushAndKill(int64_t pushes, bool after_epoch, int64_t last) {
    absl::Mutex mutex;
    int64_t acknowledged = 0;
    std::thread pusher([&] {
      const auto worker = Connect(0);
      absl::StatusOr<wire::PushReply> reply = wire::PushReply();
      while (reply.ok() && worker->client.sequence < last) {
        reply = worker->client.Push("w", Gradient(worker->client.sequence + 1));
        sent_ = std::max(sent_, worker->client.sequence);
        absl::MutexLock lock(&mutex);
        if (reply.ok()) {
          ++acknowledged;
          durable_ = std::max(durable_, reply->state.durable);
        }
      }
    });
    const auto reached = [&] { return acknowledged >= pushes; };
    {
      absl::MutexLock lock(&mutex);
      EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&reached), kTimeout)) << "slow pushes";
    }
    if (after_epoch) {
      EXPECT_OK(Connect()->client.Flush());
    }
    server_->Kill();
    pusher.join();
  }

  // Each stripe holds one complete state of the reference, at or after the published one.
  void ExpectConsistent(int64_t published) {
    const auto tool = Connect();
    std::vector<std::vector<float>> parts;
    for (const std::string& slot : slots_) parts.push_back(*tool->client.Pull("w", slot));
    for (const auto& [from, to] : {std::pair<size_t, size_t>{0, kFirstStripe},
                                   std::pair<size_t, size_t>{kFirstStripe, kElements}}) {
      State found;
      for (const std::vector<float>& part : parts) {
        found.parts.push_back(part[from]);
        for (size_t i = from; i < to; ++i) ASSERT_EQ(part[i], part[from]) << "torn stripe at " << i;
      }
      const auto at = std::find(reference_.begin(), reference_.end(), found);
      ASSERT_NE(at, reference_.end()) << "value and slots do not belong together";
      EXPECT_GE(at - reference_.begin(), published);
      EXPECT_LE(at - reference_.begin(), sent_);
    }
    // A push in progress when a snapshot begins may be counted already; its replay does not count
    // again.
    const int64_t version = tool->client.Describe()->variables[0].shards[0].version;
    EXPECT_GE(version, published);
    EXPECT_LE(version, sent_);
  }

  std::vector<std::string> slots_;
  std::vector<State> reference_;
  int64_t sent_ = 0;
  int64_t durable_ = 0;  // as last reported in replies
};

TEST_F(SnapshotKillTest, AKillLeavesAConsistentStateAndReplayCompletesIt) {
  ASSERT_NO_FATAL_FAILURE(MakeReference());
  options_.durability = "snapshot";
  options_.data_dir = temp_.Join("data");
  options_.flags = {"--snapshot_interval_seconds=0.001"};
  int64_t moved_by_epochs = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    SCOPED_TRACE(kill);
    ASSERT_NO_FATAL_FAILURE(Start());
    ASSERT_OK(Connect()->client.Create({Spec()}));
    ASSERT_NO_FATAL_FAILURE(
        PushAndKill(20, /*after_epoch=*/kill % 2 == 0, (kill + 1) * kSteps / kKills));
    ASSERT_NO_FATAL_FAILURE(Start());
    const auto worker = Connect(0);
    const int64_t published = worker->client.sequence;
    EXPECT_GE(published, durable_) << "a sequence that was told to be durable is gone";
    moved_by_epochs = std::max(moved_by_epochs, published);
    ASSERT_NO_FATAL_FAILURE(ExpectConsistent(published));
    server_->Kill();
  }
  EXPECT_GT(moved_by_epochs, 0) << "no epoch was ever published: this test proved nothing";

  ASSERT_NO_FATAL_FAILURE(Start());
  const auto worker = Connect(0);
  while (worker->client.sequence < kSteps) {
    ASSERT_OK(worker->client.Push("w", Gradient(worker->client.sequence + 1)));
  }
  sent_ = kSteps;
  ASSERT_NO_FATAL_FAILURE(ExpectConsistent(kSteps));
}

}  // namespace
}  // namespace cairn
