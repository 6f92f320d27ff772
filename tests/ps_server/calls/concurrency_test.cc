// Many threads at once: no update is lost or doubled, no row is torn. Gradients are small integers
// and the optimizer is SGD with rate 1, so every total is exact.
#include <atomic>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "ps_server/engine/engine.h"
#include "tests/ps_server/server_fixture.h"

namespace cairn {
namespace {

constexpr int kThreads = 4;
constexpr int64_t kRows = 70000;  // two stripes of one float
constexpr int64_t kKeys = 600;
constexpr int64_t kDim = 8;

void RunThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

class ConcurrencyTest : public ServerTest, public ::testing::WithParamInterface<Durability> {
 protected:
  void SetUp() override {
    options_.durability = GetParam();
    options_.snapshot_interval = absl::Milliseconds(5);  // epochs run continuously
    ASSERT_NO_FATAL_FAILURE(Start());
    wire::VariableSpec table = TableSpec("t", kDim, WireOptimizer("sgd", 1));
    table.initializer.type = "zeros";
    ASSERT_OK(Client().Create({DenseSpec("w", {kRows}, WireOptimizer("sgd", 1)), table}));
  }

  static std::vector<int64_t> AllKeys() {
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < kKeys; ++key) keys.push_back(key * 7919);
    return keys;
  }

  // A worker's step `step`: all of w, and every key twice.
  static wire::PushRequest StepOf(TestClient& client) {
    wire::PushRequest request = client.NextRequest();
    request.items.push_back(WholeItem("w", std::vector<float>(kRows, 1)));
    std::vector<int64_t> keys = AllKeys();
    keys.insert(keys.end(), keys.begin(), keys.begin() + kKeys);
    request.items.push_back(IdItem("t", wire::Selection::KEYS, keys,
                                   std::vector<float>(static_cast<size_t>(2 * kKeys * kDim), 1)));
    return request;
  }

  void ExpectTotals(float pushes) {
    const std::vector<float> w = *Client().Pull("w");
    const std::vector<float> t = *Client().PullKeys("t", AllKeys());
    EXPECT_EQ(w, std::vector<float>(kRows, -pushes));
    EXPECT_EQ(t, std::vector<float>(static_cast<size_t>(kKeys * kDim), -2 * pushes));
  }
};

// Half of the pushes are sent twice concurrently, as by a client that has lost an answer.
TEST_P(ConcurrencyTest, EveryPushOfEveryWorkerCountsOnce) {
  constexpr int kSteps = 12;
  RunThreads(kThreads, [&](int worker) {
    TestClient client = Joined(worker);
    for (int step = 0; step < kSteps; ++step) {
      const wire::PushRequest request = StepOf(client);
      RunThreads(1 + step % 2, [&](int) { EXPECT_OK(client.Send(request)); });
    }
  });
  ExpectTotals(kThreads * kSteps);
  const absl::StatusOr<wire::DescribeReply> described = Client().Describe();
  ASSERT_OK(described);
  for (const wire::VariableInfo& info : described->variables) {
    EXPECT_EQ(info.shards[0].version, kThreads * kSteps) << info.spec.name;
  }
  ASSERT_NO_FATAL_FAILURE(Restart());
  ExpectTotals(kThreads * kSteps);
}

// All elements of a row change together, so a pull that shows two different values has torn the
// row.
TEST_P(ConcurrencyTest, PulledRowsAreNeverTorn) {
  std::atomic<bool> done{false};
  RunThreads(3, [&](int role) {
    if (role == 0) {
      TestClient client = Joined(0);
      for (int step = 0; step < 20; ++step) EXPECT_OK(client.Send(StepOf(client)));
      done = true;
      return;
    }
    TestClient tool = Client();
    const Deadline deadline = Deadline::In(absl::Seconds(60));
    while (!done && !deadline.Expired()) {
      const std::vector<float> rows = *tool.PullKeys("t", AllKeys());
      for (size_t row = 0; row < static_cast<size_t>(kKeys); ++row) {
        for (size_t d = 1; d < static_cast<size_t>(kDim); ++d) {
          ASSERT_EQ(rows[row * kDim + d], rows[row * kDim]) << "row " << row;
        }
      }
    }
  });
}

// New variables, new workers and whole jobs are created and dropped during the pushes.
TEST_P(ConcurrencyTest, OtherJobsComeAndGoBesideThePushes) {
  RunThreads(3, [&](int role) {
    if (role == 0) {
      TestClient client = Joined(0);
      for (int step = 0; step < 10; ++step) EXPECT_OK(client.Send(StepOf(client)));
      return;
    }
    for (int round = 0; round < 10; ++round) {
      TestClient client = Client(0);
      client.caller().job = absl::StrCat("job", role);
      ASSERT_OK(client.Hello());
      ASSERT_OK(client.Create({DenseSpec("w", {kRows}, WireOptimizer("adam", 1))}));
      ASSERT_OK(client.Push("w", std::vector<float>(kRows, 1)));
      ASSERT_OK(client.Describe());
      wire::ServerState state;
      ASSERT_OK(CallStatus([&] { service().drop_job(state, client.caller()); }));
    }
  });
  ExpectTotals(10);
}

// Calls during Close are either counted completely or refused; the counted ones are present
// afterwards.
TEST_P(ConcurrencyTest, CloseLosesNoAcknowledgedPush) {
  std::atomic<int> acknowledged{0};
  RunThreads(kThreads + 1, [&](int worker) {
    if (worker == kThreads) {
      const Deadline deadline = Deadline::In(absl::Seconds(60));
      while (acknowledged < 2 * kThreads && !deadline.Expired()) std::this_thread::yield();
      EXPECT_OK(engine().Close());
      return;
    }
    TestClient client = Client(worker);
    if (!client.Hello().ok()) return;
    while (client.Send(StepOf(client)).ok()) ++acknowledged;
  });
  ASSERT_NO_FATAL_FAILURE(Restart());
  ExpectTotals(static_cast<float>(acknowledged));
}

INSTANTIATE_TEST_SUITE_P(Durabilities, ConcurrencyTest,
                         ::testing::Values(Durability::kOff, Durability::kSnapshot,
                                           Durability::kLog),
                         [](const auto& info) { return std::string(DurabilityName(info.param)); });

}  // namespace
}  // namespace cairn
