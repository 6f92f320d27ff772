// The client with real servers: the same bits in process and over sockets, with one server and with
// three; every push is applied exactly once when answers are lost and servers restart.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/addresses.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/ps_process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tcp_proxy.h"
#include "thrift/errors.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

ClientOptions Options(int32_t worker = 0) {
  ClientOptions options;
  options.job = "job";
  options.worker = worker;
  options.task = absl::StrCat("worker:", worker);
  return options;
}

VariableSpec Sgd(const std::string& name, Shape shape) {
  VariableSpec spec{.name = name, .shape = std::move(shape)};
  spec.optimizer.learning_rate.arguments["learning_rate"] = 1;
  return spec;
}

PushSource Whole(absl::string_view variable, const std::vector<float>& values) {
  return {.variable = variable, .values = AsBytes(absl::MakeConstSpan(values))};
}

std::vector<float> PullWhole(PsClient& client, absl::string_view variable, size_t count) {
  std::vector<float> out(count);
  EXPECT_OK(
      client.Pull({{.variable = variable, .out = AsWritableBytes(absl::MakeSpan(out))}}, Soon()));
  return out;
}

// A run of random pushes and pulls; returns every pulled value. The result depends only on the
// seed, not on the servers: every server sums a push's rows in the order of its ids.
std::vector<float> RandomRun(PsClient& client, int32_t servers, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % bound); };
  const auto real = [&] { return static_cast<float>(random() >> 40) * 0x1p-24f - 0.5f; };
  constexpr int64_t kRows = 1000, kWidth = 7, kDim = 5;
  VariableSpec dense{.name = "dense", .shape = {kRows, kWidth}};
  dense.optimizer.type = "adam";
  dense.initializer = {.type = "normal", .seed = 3};
  dense.shards = DivShards(kRows, servers).value();
  for (int32_t s = 0; s < servers; ++s) dense.shards[s].ps = s;
  VariableSpec table{.name = "table", .kind = VariableKind::kEmbedding, .shape = {kDim}};
  table.touched_rows = TouchedRows::kPushed;
  table.optimizer.type = "adagrad";
  table.initializer = {.type = "uniform", .seed = 5};
  table.bucket_ps.resize(64);
  for (size_t b = 0; b < 64; ++b) table.bucket_ps[b] = static_cast<int32_t>(b % servers);
  EXPECT_OK(client.Create({dense, table}, Soon()));

  std::vector<float> all;
  for (int step = 0; step < 30; ++step) {
    std::vector<int64_t> keys(below(200)), rows(below(200));
    for (int64_t& key : keys) key = below(5000) - 2500;
    for (int64_t& row : rows) row = below(kRows);
    const bool whole = step % 3 == 0;
    std::vector<float> key_values(keys.size() * kDim),
        row_values((whole ? kRows : rows.size()) * kWidth);
    std::generate(key_values.begin(), key_values.end(), real);
    std::generate(row_values.begin(), row_values.end(), real);
    const absl::Span<const int64_t> row_ids =
        whole ? absl::Span<const int64_t>() : absl::MakeConstSpan(rows);
    const Part part = whole ? Part::kWhole : Part::kRows;
    std::vector<float> key_out(key_values.size()), row_out(row_values.size());
    EXPECT_OK(client.PushPull({{.variable = "dense",
                                .part = part,
                                .ids = row_ids,
                                .values = AsBytes(absl::MakeConstSpan(row_values))},
                               {.variable = "table",
                                .part = Part::kKeys,
                                .ids = keys,
                                .values = AsBytes(absl::MakeConstSpan(key_values))}},
                              "",
                              {{.variable = "dense",
                                .part = part,
                                .ids = row_ids,
                                .out = AsWritableBytes(absl::MakeSpan(row_out))},
                               {.variable = "table",
                                .part = Part::kKeys,
                                .ids = keys,
                                .out = AsWritableBytes(absl::MakeSpan(key_out))}},
                              Soon()));
    all.insert(all.end(), row_out.begin(), row_out.end());
    all.insert(all.end(), key_out.begin(), key_out.end());
  }
  return all;
}

TEST(ClientServers, GiveTheSameBitsForAnyNumberOfServersAndInProcess) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    std::vector<float> expected;
    for (const int32_t servers : {1, 3}) {
      for (const bool in_process : {true, false}) {
        EngineCluster cluster(servers);
        auto client = cluster.Connect(Options(), in_process, Soon());
        ASSERT_OK(client);
        const std::vector<float> got = RandomRun(**client, servers, seed);
        ASSERT_GT(got.size(), 1000u);
        if (expected.empty()) expected = got;
        ASSERT_EQ(got.size(), expected.size());
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
            << servers << " servers, in process " << in_process << ", seed " << seed;
      }
    }
  }
}

// Worker 1 was not told that worker 0 starts the job over.
TEST(ClientServers, AWorkerOfADroppedJobMustStop) {
  EngineCluster cluster(2);
  auto first = cluster.Connect(Options(0), true, Soon()),
       other = cluster.Connect(Options(1), true, Soon());
  ASSERT_OK(first);
  ASSERT_OK(other);
  const auto create = [](PsClient& client) {
    return client.Create({Sgd("a", {3}), Sgd("b", {3})}, Soon());
  };
  ASSERT_OK(create(**first));
  ASSERT_OK(create(**other));
  const std::vector<float> ones(3, 1);
  const auto push = [&](PsClient& client) {
    return client.Push({Whole("a", ones), Whole("b", ones)}, "", Soon());
  };
  for (int step = 0; step < 3; ++step) ASSERT_OK(push(**other));
  ASSERT_OK((*first)->DropJob(Soon()));
  ASSERT_OK(create(**first));
  for (int tries = 0; tries < 2; ++tries) {
    const absl::Status status = push(**other);
    EXPECT_EQ(ReasonOf(status), wire::ErrorReason::FENCED) << status;
  }
  ASSERT_OK(push(**first));
  EXPECT_EQ(PullWhole(**first, "a", 3), std::vector<float>(3, -1));
}

TEST(ClientServers, ApplyAPushOnceWhenItsAnswerIsLost) {
  EngineCluster cluster(2);
  TcpProxy first(cluster.address(0)), second(cluster.address(1));
  ClientOptions options = Options();
  options.servers = {first.address(), second.address()};
  options.local_transport = LocalTransport::kOff;  // the local transport bypasses proxies
  auto client = cluster.Connect(options, false, Soon());
  ASSERT_OK(client);
  ASSERT_OK((*client)->Create({Sgd("a", {3}), Sgd("b", {3})}, Soon()));
  const std::vector<float> ones(3, 1);
  std::vector<float> out(3);
  for (int step = 0; step < 20; ++step) {
    (step % 2 == 0 ? first : second).DropReplies(1);
    ASSERT_OK((*client)->PushPull({Whole("a", ones), Whole("b", ones)}, "",
                                  {{.variable = "b", .out = AsWritableBytes(absl::MakeSpan(out))}},
                                  Soon()));
  }
  EXPECT_EQ((*client)->counters().retries, 20);
  EXPECT_EQ(PullWhole(**client, "a", 3), std::vector<float>(3, -20));
  EXPECT_EQ(PullWhole(**client, "b", 3), std::vector<float>(3, -20));
}

TEST(ClientServers, DropTheJobWhenTheAnswerIsLost) {
  EngineCluster cluster(2);
  TcpProxy first(cluster.address(0)), second(cluster.address(1));
  ClientOptions options = Options();
  options.servers = {first.address(), second.address()};
  options.local_transport = LocalTransport::kOff;  // the local transport bypasses proxies
  auto client = cluster.Connect(options, false, Soon());
  ASSERT_OK(client);
  const std::vector<float> ones(3, 1);
  for (TcpProxy* proxy : {&first, &second}) {
    ASSERT_OK((*client)->Create({Sgd("a", {3}), Sgd("b", {3})}, Soon()));
    ASSERT_OK((*client)->Push({Whole("a", ones), Whole("b", ones)}, "", Soon()));
    EXPECT_EQ(PullWhole(**client, "b", 3), std::vector<float>(3, -1));
    proxy->DropReplies(1);
    ASSERT_OK((*client)->DropJob(Soon()));
  }
}

TEST(ClientServers, ContinueAfterACleanRestart) {
  EngineCluster cluster(2);
  auto client = cluster.Connect(Options(), false, Soon());
  ASSERT_OK(client);
  ASSERT_OK((*client)->Create({Sgd("a", {3}), Sgd("b", {3})}, Soon()));
  const std::vector<float> ones(3, 1);
  for (int step = 0; step < 6; ++step) {
    cluster.Restart(step % 2);
    ASSERT_OK((*client)->Push({Whole("a", ones), Whole("b", ones)}, "", Soon()));
  }
  EXPECT_EQ(PullWhole(**client, "a", 3), std::vector<float>(3, -6));
  EXPECT_EQ(PullWhole(**client, "b", 3), std::vector<float>(3, -6));
}

TEST(ClientServers, ResumeAWorkerAtItsLastPush) {
  EngineCluster cluster(3);
  const std::vector<float> ones(3, 1);
  for (int start = 0; start < 3; ++start) {
    auto client = cluster.Connect(Options(), start % 2 == 0, Soon());
    ASSERT_OK(client);
    EXPECT_EQ((*client)->position(), start == 0 ? "" : absl::StrCat("at ", 2 * start));
    ASSERT_OK((*client)->Create({Sgd("a", {3}), Sgd("b", {3})}, Soon()));
    // ps:2 holds no part of either; a is on ps:0 and b on ps:1.
    ASSERT_OK((*client)->Push({Whole("a", ones), Whole("b", ones)},
                              absl::StrCat("at ", 2 * start + 1), Soon()));
    ASSERT_OK((*client)->Push({Whole("b", ones)}, absl::StrCat("at ", 2 * start + 2), Soon()));
  }
  auto tool = cluster.Connect(Options(-1), false, Soon());
  ASSERT_OK(tool);
  ASSERT_OK((*tool)->Describe(Soon()));
  EXPECT_EQ(PullWhole(**tool, "a", 3), std::vector<float>(3, -3));
  EXPECT_EQ(PullWhole(**tool, "b", 3), std::vector<float>(3, -6));
}

TEST(ClientServers, FenceThePreviousStart) {
  EngineCluster cluster(2);
  auto older = cluster.Connect(Options(), false, Soon());
  ASSERT_OK(older);
  ASSERT_OK((*older)->Create({Sgd("a", {3})}, Soon()));
  auto newer = cluster.Connect(Options(), false, Soon());
  ASSERT_OK(newer);
  EXPECT_THAT((*older)->Push({Whole("a", {1, 1, 1})}, "", Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("must stop")));
  ASSERT_OK((*newer)->Create({Sgd("a", {3})}, Soon()));
  EXPECT_OK((*newer)->Push({Whole("a", {1, 1, 1})}, "", Soon()));
}

TEST(ClientServers, ShowBothSpecsOfAConflict) {
  EngineCluster cluster(2);
  auto client = cluster.Connect(Options(), false, Soon());
  ASSERT_OK(client);
  ASSERT_OK((*client)->Create({Sgd("a", {3})}, Soon()));
  VariableSpec other = Sgd("a", {3});
  other.optimizer.type = "adagrad";
  EXPECT_THAT(
      (*client)->Create({other}, Soon()),
      StatusIs(absl::StatusCode::kAlreadyExists, AllOf(HasSubstr("sgd"), HasSubstr("adagrad"))));
}

TEST(ClientServers, ScanStoredRows) {
  EngineCluster cluster(3);
  auto client = cluster.Connect(Options(), false, Soon());
  ASSERT_OK(client);
  VariableSpec table{.name = "t", .kind = VariableKind::kEmbedding, .shape = {2}};
  table.touched_rows = TouchedRows::kPushed;
  table.optimizer.learning_rate.arguments["learning_rate"] = 1;
  ASSERT_OK((*client)->Create({table}, Soon()));
  std::vector<int64_t> keys(20000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  std::vector<float> values(2 * keys.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / 2);
  ASSERT_OK((*client)->Push({{.variable = "t",
                              .part = Part::kKeys,
                              .ids = keys,
                              .values = AsBytes(absl::MakeConstSpan(values))}},
                            "", Soon()));
  std::vector<int> seen(keys.size());
  ASSERT_OK((*client)->Scan(
      "t",
      [&](int64_t key, absl::Span<const std::byte> row) {
        float first = 0;
        std::memcpy(&first, row.data(), sizeof first);
        ++seen.at(static_cast<size_t>(key));
        EXPECT_EQ(first, -static_cast<float>(key));
      },
      Soon()));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(seen.size()));
}

// Real processes, killed while a worker pushes.
class KilledServers : public ::testing::Test {
 protected:
  void StartAll(const std::string& durability) {
    for (int32_t s = 0; s < 2; ++s) {
      options_[s] = {.data_dir = folder_.Join(absl::StrCat("ps", s)),
                     .task_index = s,
                     .ps_count = 2,
                     .durability = durability};
      ASSERT_NO_FATAL_FAILURE(Start(s));
      options_[s].port = servers_[s]->port();
    }
  }
  void Start(int32_t server) {
    auto started = PsProcess::Start(options_[server]);
    ASSERT_OK(started);
    servers_[server] = *std::move(started);
  }
  std::unique_ptr<PsClient> Connect(ClientOptions options = Options()) {
    options.servers = {servers_[0]->address(), servers_[1]->address()};
    auto client = PsClient::Connect(options, Soon());
    EXPECT_OK(client);
    EXPECT_OK((*client)->Create({Sgd("a", {3}), Sgd("b", {3})}, Soon()));
    return *std::move(client);
  }

  TempDir folder_;
  PsOptions options_[2];
  static constexpr int kSteps = 200;
  // Pushes kSteps times, calls `kill` three times meanwhile, and expects that every push counts
  // once.
  void PushThrough(PsClient& client, absl::FunctionRef<void(int round)> kill) {
    std::atomic<int> steps = 0;
    std::thread worker([&] {
      for (; steps < kSteps; ++steps) {
        ASSERT_OK(client.Push({Whole("a", ones_), Whole("b", ones_)}, "", Soon()));
      }
    });
    for (int round = 1; round <= 3 && !HasFatalFailure(); ++round) {
      const Deadline deadline = Soon();
      while (steps < round * kSteps / 4 && !deadline.Expired()) std::this_thread::yield();
      kill(round);
    }
    worker.join();
    EXPECT_EQ(PullWhole(client, "a", 3), std::vector<float>(3, -kSteps));
    EXPECT_EQ(PullWhole(client, "b", 3), std::vector<float>(3, -kSteps));
  }

  std::unique_ptr<PsProcess> servers_[2];
  const std::vector<float> ones_ = std::vector<float>(3, 1);
};

TEST_F(KilledServers, KeepEveryAcknowledgedPushUnderLog) {
  ASSERT_NO_FATAL_FAILURE(StartAll("log"));
  const auto client = Connect();
  ASSERT_NO_FATAL_FAILURE(PushThrough(*client, [&](int round) {
    servers_[round % 2]->Kill();
    ASSERT_NO_FATAL_FAILURE(Start(round % 2));
  }));
}

// Under `snapshot` a kill loses the pushes that no snapshot has written; the client sends them
// again.
TEST_F(KilledServers, GetLostPushesAgainUnderSnapshot) {
  ASSERT_NO_FATAL_FAILURE(StartAll("snapshot"));
  const auto client = Connect();
  ASSERT_NO_FATAL_FAILURE(PushThrough(*client, [&](int) {
    for (auto& server : servers_) server->Kill();
    for (int32_t s = 0; s < 2; ++s) ASSERT_NO_FATAL_FAILURE(Start(s));
  }));
  EXPECT_GT(client->counters().replayed_pushes, 0);
  // After Leave, the servers hold every push and the client retains none.
  ASSERT_OK(client->Leave(Soon()));
  for (int32_t s = 0; s < 2; ++s) {
    servers_[s]->Kill();
    ASSERT_NO_FATAL_FAILURE(Start(s));
  }
  const auto again = Connect();
  EXPECT_EQ(PullWhole(*again, "a", 3), std::vector<float>(3, -kSteps));
  EXPECT_EQ(PullWhole(*again, "b", 3), std::vector<float>(3, -kSteps));
}

// Servers and the worker are killed at the same moment: the next start computes the lost pushes
// again.
TEST_F(KilledServers, AndTheirWorkerResumeFromTheCommonState) {
  ASSERT_NO_FATAL_FAILURE(StartAll("snapshot"));
  {
    const auto client = Connect();
    ASSERT_OK(client->Push({Whole("a", ones_), Whole("b", ones_)}, "one", Soon()));
    ASSERT_OK(client->Flush(Soon()));
    ASSERT_OK(client->Push({Whole("a", ones_), Whole("b", ones_)}, "two", Soon()));
    servers_[1]->Kill();
  }
  ASSERT_NO_FATAL_FAILURE(Start(1));
  const auto again = Connect();
  EXPECT_EQ(again->position(), "one");
  // ps:0 has this push already, and drops it.
  ASSERT_OK(again->Push({Whole("a", ones_), Whole("b", ones_)}, "two", Soon()));
  EXPECT_EQ(PullWhole(*again, "a", 3), std::vector<float>(3, -2));
  EXPECT_EQ(PullWhole(*again, "b", 3), std::vector<float>(3, -2));
}

TEST_F(KilledServers, ReportWhichPushesAreLostUnderOff) {
  ASSERT_NO_FATAL_FAILURE(StartAll("off"));
  const auto client = Connect();
  ASSERT_OK(client->Push({Whole("a", ones_), Whole("b", ones_)}, "", Soon()));
  servers_[1]->Kill();
  ASSERT_NO_FATAL_FAILURE(Start(1));
  EXPECT_THAT(client->Push({Whole("a", ones_), Whole("b", ones_)}, "", Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("ps:1"), HasSubstr("without acknowledged push 1 "),
                             HasSubstr("durability off"))));
}

TEST_F(KilledServers, EndTheWaitAfterPsWait) {
  ASSERT_NO_FATAL_FAILURE(StartAll("snapshot"));
  ClientOptions options = Options();
  options.ps_wait = absl::Milliseconds(200);
  const auto client = Connect(options);
  servers_[1]->Kill();
  EXPECT_THAT(client->Push({Whole("a", ones_), Whole("b", ones_)}, "", Soon()),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:1 (" + OwnHost() + ":"),
                             HasSubstr("has been down since"), HasSubstr("200ms"))));
}

}  // namespace
}  // namespace cairn::test
