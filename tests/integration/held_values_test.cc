// A client that keeps pulled values and receives only later changes always ends with the same
// values as a client that pulls everything, over every transport and whatever happens to servers
// and rows in the meantime.
#include "worker/client/held_values.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/row_moves.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tcp_proxy.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

constexpr int32_t kServers = 2;
constexpr int64_t kRows = 100000;  // of two floats, in shards of one stripe and of two
constexpr int64_t kBytes = kRows * 2 * sizeof(float);

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

ClientOptions Options(int32_t worker) {
  ClientOptions options;
  options.job = "job";
  options.worker = worker;
  options.task = worker < 0 ? "tool" : absl::StrCat("worker:", worker);
  options.ps_wait = absl::Seconds(20);
  return options;
}

VariableSpec Dense() {
  VariableSpec spec{.name = "w",
                    .shape = {kRows, 2},
                    .shards = {{0, 20000, 0}, {20000, 40000, 1}, {60000, 40000, 0}}};
  spec.optimizer.learning_rate.arguments["learning_rate"] = 1;
  spec.initializer.type = "zeros";
  return spec;
}

// A caller's memory and the state of the copy in it.
struct Copy {
  std::vector<float> values = std::vector<float>(2 * kRows, -3);
  HeldValues held;

  PullTarget target(ValueFormat format = ValueFormat::kPlain) {
    return {.variable = "w",
            .out = AsWritableBytes(absl::MakeSpan(values)),
            .format = format,
            .held = &held};
  }
};

enum class Way { kInProcess, kTcp, kLocal };

class HeldValuesServersTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    tool_ = Connect(-1);
    ASSERT_OK(tool_->Create({Dense()}, Soon()));
    client_ = Connect(0);
    ASSERT_OK(client_->Create({Dense()}, Soon()));
  }
  std::unique_ptr<PsClient> Connect(int32_t worker) {
    ClientOptions options = Options(worker);
    if (GetParam() == Way::kTcp) options.local_transport = LocalTransport::kOff;
    return cluster_.Connect(options, GetParam() == Way::kInProcess, Soon()).value();
  }
  std::vector<float> Everything() {
    std::vector<float> out(2 * kRows);
    EXPECT_OK(
        tool_->Pull({{.variable = "w", .out = AsWritableBytes(absl::MakeSpan(out))}}, Soon()));
    return out;
  }
  // Returns the number of bytes received.
  int64_t Refresh(Copy& copy) {
    const int64_t before = client_->counters().bytes_pulled;
    EXPECT_OK(client_->Pull({copy.target()}, Soon()));
    EXPECT_EQ(copy.values, Everything());
    return client_->counters().bytes_pulled - before;
  }
  absl::Status PushRows(PsClient& client, const std::vector<int64_t>& rows) {
    const std::vector<float> gradient(2 * rows.size(), 1);
    return client.Push({{.variable = "w",
                         .part = Part::kRows,
                         .ids = rows,
                         .values = AsBytes(absl::MakeConstSpan(gradient))}},
                       "", Soon());
  }
  absl::Status MoveShards(int32_t source, int32_t target, size_t shards) {
    ASSIGN_OR_RETURN(const std::vector<VariableSpec> specs, tool_->Describe(Soon()));
    EngineMoves moves(cluster_);
    return MoveSome(specs.at(0), source, target, shards, kServers, moves).status();
  }

  EngineCluster cluster_{kServers};
  std::unique_ptr<PsClient> tool_, client_;
};
INSTANTIATE_TEST_SUITE_P(Ways, HeldValuesServersTest,
                         ::testing::Values(Way::kInProcess, Way::kTcp, Way::kLocal));

TEST_P(HeldValuesServersTest, BringsTheChanges) {
  Copy copy;
  EXPECT_EQ(Refresh(copy), kBytes);
  EXPECT_EQ(Refresh(copy), 0);
  ASSERT_OK(PushRows(*tool_, {1, 30000}));
  // Two blocks of 4 KiB, each with a row number and a count.
  EXPECT_EQ(Refresh(copy), 2 * (4096 + 16));
  std::mt19937_64 random(3);
  for (int step = 0; step < 30; ++step) {
    std::vector<int64_t> rows(random() % 20);
    for (int64_t& row : rows) row = static_cast<int64_t>(random() % kRows);
    ASSERT_OK(PushRows(step % 2 == 0 ? *tool_ : *client_, rows));
    EXPECT_LT(Refresh(copy), kBytes);
  }
  const std::vector<float> all(2 * kRows, 0.5F);
  ASSERT_OK(
      client_->Push({{.variable = "w", .values = AsBytes(absl::MakeConstSpan(all))}}, "", Soon()));
  EXPECT_EQ(Refresh(copy), kBytes);
  ASSERT_OK(
      tool_->Assign({{.variable = "w", .values = AsBytes(absl::MakeConstSpan(all))}}, Soon()));
  EXPECT_EQ(Refresh(copy), kBytes);
}

TEST_P(HeldValuesServersTest, OneRoundTripPushesAndBringsItsChanges) {
  Copy copy;
  Refresh(copy);
  const std::vector<int64_t> rows = {7, 59999, 99999};
  const std::vector<float> gradient(6, 1);
  ASSERT_OK(client_->PushPull({{.variable = "w",
                                .part = Part::kRows,
                                .ids = rows,
                                .values = AsBytes(absl::MakeConstSpan(gradient))}},
                              "", {copy.target()}, Soon()));
  EXPECT_EQ(copy.values, Everything());
  EXPECT_EQ(Refresh(copy), 0);
}

TEST_P(HeldValuesServersTest, RoundedCopiesStayAsReceived) {
  Copy copy;
  ASSERT_OK(client_->Pull({copy.target(ValueFormat::kInt8)}, Soon()));
  const std::vector<int64_t> rows = {100, 99999};
  const std::vector<float> gradient = {1, -127, 64, -127};
  ASSERT_OK(client_->PushPull({{.variable = "w",
                                .part = Part::kRows,
                                .ids = rows,
                                .values = AsBytes(absl::MakeConstSpan(gradient))}},
                              "", {copy.target(ValueFormat::kInt8)}, Soon()));
  EXPECT_EQ(copy.values, Everything());
  // In another format the copy is useless.
  EXPECT_EQ(Refresh(copy), kBytes);
}

TEST_P(HeldValuesServersTest, ARestartedServerSendsAllOfItsPart) {
  Copy copy;
  Refresh(copy);
  ASSERT_OK(PushRows(*client_, {5, 25000}));
  if (GetParam() == Way::kInProcess) client_.reset(), tool_.reset();  // these call into the server
  cluster_.Restart(1);
  if (GetParam() == Way::kInProcess) {
    tool_ = Connect(-1);
    ASSERT_OK(tool_->Describe(Soon()));
    client_ = Connect(0);
    ASSERT_OK(client_->Describe(Soon()));
  }
  EXPECT_EQ(Refresh(copy), (4096 + 16) + 40000 * 8);
  EXPECT_EQ(Refresh(copy), 0);
}

TEST_P(HeldValuesServersTest, MovedShardsComeWholeEvenIfTheyMoveBack) {
  Copy copy;
  Refresh(copy);
  ASSERT_OK(MoveShards(0, 1, 1));
  ASSERT_OK(PushRows(*tool_, {3, 20001}));
  EXPECT_GE(Refresh(copy), 20000 * 8);
  ASSERT_OK(PushRows(*client_, {3, 20001, 60001}));
  EXPECT_EQ(Refresh(copy), 3 * (4096 + 16));
  // Moves the shard back, with a change that the first server did not see.
  ASSERT_OK(PushRows(*tool_, {4}));
  ASSERT_OK(MoveShards(1, 0, 1));
  EXPECT_GE(Refresh(copy), 20000 * 8);
  EXPECT_EQ(Refresh(copy), 0);
}

// A copy pulled from the shard before it left is not a copy of the shard that came back.
TEST_P(HeldValuesServersTest, ACopyFromBeforeAShardLeftIsNotUsedAfterItCameBack) {
  Copy copy;
  Refresh(copy);
  ASSERT_OK(MoveShards(0, 1, 1));
  ASSERT_OK(PushRows(*tool_, {4}));
  ASSERT_OK(MoveShards(1, 0, 1));
  // Learns the placement maps, but not with this copy.
  Copy other;
  Refresh(other);
  EXPECT_EQ(Refresh(copy), 20000 * 8);
}

TEST_P(HeldValuesServersTest, ThreadsKeepTheirOwnCopiesWhileRowsChangeAndMove) {
  std::vector<std::thread> threads;
  std::vector<Copy> copies(3);
  for (Copy& copy : copies) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) EXPECT_OK(client_->Pull({copy.target()}, Soon()));
    });
  }
  threads.emplace_back([&] {
    for (int64_t i = 0; i < 60; ++i) {
      EXPECT_OK(PushRows(*tool_, {i * 1009 % kRows, i * 5003 % kRows}));
    }
  });
  const auto mover = Connect(-1);
  EXPECT_OK(mover->Describe(Soon()));
  EXPECT_OK(MoveShards(0, 1, 1));
  EXPECT_OK(MoveShards(1, 0, 1));
  for (std::thread& thread : threads) thread.join();
  for (Copy& copy : copies) Refresh(copy);
}

// Servers behind proxies that discard answers: the server has recorded its mark, and the client
// does not know.
TEST(HeldValuesProxyTest, LostAnswersOmitNothing) {
  EngineCluster cluster(kServers);
  std::vector<std::unique_ptr<TcpProxy>> proxies;
  ClientOptions options = Options(0);
  options.local_transport = LocalTransport::kOff;
  for (int32_t s = 0; s < kServers; ++s) {
    proxies.push_back(std::make_unique<TcpProxy>(cluster.address(s)));
    options.servers.push_back(proxies.back()->address());
  }
  const auto client = PsClient::Connect(options, Soon()).value();
  const auto tool = cluster.Connect(Options(-1), true, Soon()).value();
  ASSERT_OK(tool->Create({Dense()}, Soon()));
  ASSERT_OK(client->Describe(Soon()));
  Copy copy;
  const std::vector<float> ones(4, 1);
  for (int64_t round = 0; round < 20; ++round) {
    const std::vector<int64_t> rows = {round * 997, round * 4999 + 1};
    ASSERT_OK(tool->Push({{.variable = "w",
                           .part = Part::kRows,
                           .ids = rows,
                           .values = AsBytes(absl::MakeConstSpan(ones))}},
                         "", Soon()));
    proxies[round % 2]->DropReplies(1 + static_cast<int>(round % 3));
    if (round % 5 == 4) {
      // Fails permanently after part of it has arrived: the next pull completes it.
      proxies[0]->Shut();
      EXPECT_FALSE(client->Pull({copy.target()}, Deadline::In(absl::Milliseconds(50))).ok());
      proxies[0]->Open();
    }
    ASSERT_OK(client->Pull({copy.target()}, Soon()));
    std::vector<float> whole(2 * kRows);
    ASSERT_OK(
        tool->Pull({{.variable = "w", .out = AsWritableBytes(absl::MakeSpan(whole))}}, Soon()));
    ASSERT_EQ(copy.values, whole) << round;
  }
}

}  // namespace
}  // namespace cairn::test
