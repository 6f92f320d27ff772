// Rows move between servers while workers push: every push counts once on every row, wherever the
// row is when the push arrives.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/variables/variable_map.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/row_moves.h"
#include "tests/support/status_matchers.h"
#include "worker/client/moves/row_mover.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int32_t kServers = 3;
constexpr int64_t kKeys = 200;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

ClientOptions Options(int32_t worker) {
  ClientOptions options;
  options.job = "job";
  options.worker = worker;
  options.task = worker < 0 ? "tool" : absl::StrCat("worker:", worker);
  return options;
}

VariableSpec Counting(VariableSpec spec) {
  spec.optimizer.learning_rate.arguments["learning_rate"] = 1;
  spec.initializer.type = "zeros";
  return spec;
}
VariableSpec Table() {
  return Counting({.name = "emb",
                   .kind = VariableKind::kEmbedding,
                   .shape = {2},
                   .touched_rows = TouchedRows::kPushed,
                   .bucket_ps = {0, 1, 0, 1, 0, 1, 0, 1}});
}
VariableSpec Dense() {
  return Counting({.name = "w", .shape = {6, 2}, .shards = {{0, 3, 0}, {3, 3, 1}}});
}

class MovesTest : public ::testing::Test {
 protected:
  void Begin() {
    tool_ = cluster_.Connect(Options(-1), true, Soon()).value();
    ASSERT_OK(tool_->Create({Table(), Dense()}, Soon()));
  }
  VariableSpec Now(const std::string& name) {
    const std::vector<VariableSpec> specs = tool_->Describe(Soon()).value();
    for (const VariableSpec& spec : specs) {
      if (spec.name == name) return spec;
    }
    return {};
  }
  absl::StatusOr<RowMoveOutcome> Move(const std::string& name, int32_t source, int32_t target,
                                      size_t pieces) {
    return MoveSome(Now(name), source, target, pieces, kServers, moves_);
  }
  // Pushes one to all of "w", and to these keys of "emb".
  static absl::Status PushOnes(PsClient& client, const std::vector<int64_t>& keys) {
    const std::vector<float> ones(keys.size() * 2, 1), all(12, 1);
    return client.Push({{.variable = "emb",
                         .part = Part::kKeys,
                         .ids = keys,
                         .values = AsBytes(absl::MakeConstSpan(ones))},
                        {.variable = "w", .values = AsBytes(absl::MakeConstSpan(all))}},
                       "", Soon());
  }
  std::vector<float> Pull(PsClient& client) {
    std::vector<int64_t> keys(kKeys);
    for (int64_t k = 0; k < kKeys; ++k) keys[k] = k;
    std::vector<float> out(kKeys * 2);
    EXPECT_OK(client.Pull({{.variable = "emb",
                            .part = Part::kKeys,
                            .ids = keys,
                            .out = AsWritableBytes(absl::MakeSpan(out))}},
                          Soon()));
    return out;
  }
  std::vector<float> PullDense(PsClient& client) {
    std::vector<float> out(12);
    EXPECT_OK(
        client.Pull({{.variable = "w", .out = AsWritableBytes(absl::MakeSpan(out))}}, Soon()));
    return out;
  }

  // Snapshots run only on request.
  EngineCluster cluster_{kServers, Durability::kSnapshot, 0, absl::Hours(1)};
  EngineMoves moves_{cluster_};
  std::unique_ptr<PsClient> tool_;
};

TEST_F(MovesTest, RowsKeepTheirValuesAndServersTheirParts) {
  Begin();
  auto worker = cluster_.Connect(Options(0), true, Soon()).value();
  ASSERT_OK(worker->Create({Table(), Dense()}, Soon()));
  const std::vector<int64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto push = [&] { return PushOnes(*worker, keys); };
  ASSERT_OK(push());
  const auto moved = Move("emb", 0, 2, 4);
  ASSERT_OK(moved);
  EXPECT_EQ(moved->stripes, 4);
  ASSERT_OK(Move("w", 1, 2, 1));
  ASSERT_OK(push());
  EXPECT_THAT(PullDense(*worker), Each(-2));
  const std::vector<float> rows = Pull(*worker);
  for (const int64_t key : keys) EXPECT_EQ(rows[key * 2], -2) << key;
  EXPECT_EQ(Pull(*tool_), rows);
  const VariableSpec now = Now("emb");
  EXPECT_EQ(now.map_version, 2);
  EXPECT_EQ(std::count(now.bucket_ps.begin(), now.bucket_ps.end(), 0), 0);
  EXPECT_EQ(std::count(now.bucket_ps.begin(), now.bucket_ps.end(), 2), 4);
  // As on disk. The clients, whose heartbeats call into the servers, end first.
  worker.reset();
  tool_.reset();
  for (int32_t s = 0; s < kServers; ++s) cluster_.Restart(s);
  const auto after = cluster_.Connect(Options(-1), true, Soon()).value();
  ASSERT_OK(after->Describe(Soon()).status());
  EXPECT_EQ(Pull(*after), rows);
  EXPECT_THAT(PullDense(*after), Each(-2));
}

// The moved rows are durable on their new server; the other rows' pushes are sent again, without
// them.
TEST_F(MovesTest, ASourceKilledAfterwardsGetsThePushesOfItsRows) {
  Begin();
  const auto worker = cluster_.Connect(Options(0), false, Soon()).value();
  ASSERT_OK(worker->Create({Table(), Dense()}, Soon()));
  std::vector<int64_t> keys(kKeys);
  for (int64_t k = 0; k < kKeys; ++k) keys[k] = k;
  const auto push = [&] { return PushOnes(*worker, keys); };
  for (int i = 0; i < 3; ++i) ASSERT_OK(push());
  ASSERT_OK(Move("emb", 0, 2, 2));
  ASSERT_OK(Move("emb", 0, 1, 1));
  tool_.reset();
  cluster_.Crash(0);
  ASSERT_OK(push());
  EXPECT_THAT(Pull(*worker), Each(-4));
  EXPECT_THAT(PullDense(*worker), Each(-4));
  EXPECT_EQ(worker->counters().replayed_pushes, 3);
  // Nothing is left now.
  tool_ = cluster_.Connect(Options(-1), true, Soon()).value();
  ASSERT_OK(Move("emb", 0, 1, 1));
  ASSERT_OK(Move("w", 0, 2, 1));
  tool_.reset();
  cluster_.Crash(0);
  cluster_.Crash(2);
  ASSERT_OK(push());
  EXPECT_THAT(Pull(*worker), Each(-5));
  EXPECT_THAT(PullDense(*worker), Each(-5));
}

// The keys that each worker pushed, with the number of pushes.
struct Counted {
  std::vector<int64_t> keys = std::vector<int64_t>(kKeys);
  int64_t pushes = 0;
};

void PushUntil(PsClient& client, uint64_t seed, const std::atomic<bool>& stop, Counted& counted) {
  std::mt19937_64 random(seed);
  const std::vector<float> all(12, 1);
  while (!stop.load()) {
    std::vector<int64_t> keys(1 + random() % 20);
    for (int64_t& key : keys) key = static_cast<int64_t>(random() % kKeys);
    const std::vector<float> ones(keys.size() * 2, 1);
    std::vector<float> pulled(keys.size() * 2);
    ASSERT_OK(
        client.PushPull({{.variable = "emb",
                          .part = Part::kKeys,
                          .ids = keys,
                          .values = AsBytes(absl::MakeConstSpan(ones)),
                          .format = seed % 2 == 0 ? ValueFormat::kPlain : ValueFormat::kFloat16},
                         {.variable = "w", .values = AsBytes(absl::MakeConstSpan(all))}},
                        "",
                        {{.variable = "emb",
                          .part = Part::kKeys,
                          .ids = keys,
                          .out = AsWritableBytes(absl::MakeSpan(pulled))}},
                        Soon()));
    for (const int64_t key : keys) ++counted.keys[key];
    ++counted.pushes;
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_LE(pulled[i * 2], -static_cast<float>(counted.keys[keys[i]])) << keys[i];
    }
  }
}

class BusyMovesTest : public MovesTest, public ::testing::WithParamInterface<bool> {};

TEST_P(BusyMovesTest, EveryPushCountsOnce) {
  Begin();
  constexpr int32_t kWorkers = 3;
  std::atomic<bool> stop{false};
  std::vector<Counted> counted(kWorkers);
  std::vector<std::unique_ptr<PsClient>> clients;
  std::vector<std::thread> threads;
  for (int32_t w = 0; w < kWorkers; ++w) {
    clients.push_back(cluster_.Connect(Options(w), GetParam(), Soon()).value());
    ASSERT_OK(clients.back()->Create({Table(), Dense()}, Soon()));
  }
  for (int32_t w = 0; w < kWorkers; ++w) {
    threads.emplace_back(
        [&, w] { PushUntil(*clients[w], static_cast<uint64_t>(w), stop, counted[w]); });
  }
  std::mt19937_64 random(7);
  int moves = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string name = random() % 4 == 0 ? "w" : "emb";
    const auto source = static_cast<int32_t>(random() % kServers);
    const auto target = static_cast<int32_t>((source + 1 + random() % 2) % kServers);
    if (PiecesOn(Now(name), source) == 0) continue;
    const auto moved = Move(name, source, target, 1 + random() % 4);
    EXPECT_OK(moved);
    moves += moved.ok();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(moves, 20);
  std::vector<float> expected(kKeys * 2);
  int64_t pushes = 0;
  for (const Counted& one : counted) {
    for (int64_t k = 0; k < kKeys; ++k) {
      expected[k * 2] -= static_cast<float>(one.keys[k]);
      expected[k * 2 + 1] = expected[k * 2];
    }
    pushes += one.pushes;
  }
  EXPECT_EQ(Pull(*clients[0]), expected);
  EXPECT_THAT(PullDense(*clients[1]), Each(-static_cast<float>(pushes)));
}

// Whether or not the target of the last move has received its COMMIT.
TEST_F(MovesTest, AScanWhileRowsMoveHasEveryRowOnce) {
  Begin();
  std::vector<int64_t> keys(kKeys);
  std::iota(keys.begin(), keys.end(), int64_t{0});
  ASSERT_OK(PushOnes(*tool_, keys));
  std::atomic<bool> stop{false};
  std::atomic<int> moves{0};
  std::thread moving([&] {
    for (int32_t source = 0; !stop; source = (source + 1) % kServers) {
      const VariableSpec now = Now("emb");
      if (PiecesOn(now, source) == 0) continue;
      const auto moved = Move("emb", source, (source + 1) % kServers, 3);
      EXPECT_OK(moved);
      ++moves;
    }
  });
  const absl::Cleanup end = [&] {
    stop = true;
    moving.join();
  };
  const auto reader = cluster_.Connect(Options(-1), true, Soon()).value();
  ASSERT_OK(reader->Describe(Soon()).status());
  for (int scans = 0, whole = 0; whole < 20 || moves < 40; ++scans) {
    ASSERT_LT(scans, 100000);
    std::vector<int64_t> seen;
    const auto see = [&](int64_t key, absl::Span<const std::byte>) { seen.push_back(key); };
    const absl::Status status = reader->Scan("emb", see, Soon());
    if (absl::IsAborted(status)) continue;
    ASSERT_OK(status);
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(seen, keys) << "scan " << scans;
    ++whole;
  }
}

// A serving process stays connected while the job is started over. Its maps have higher versions
// than the new ones.
TEST_F(MovesTest, AReaderFollowsAJobThatWasDropped) {
  Begin();
  auto worker = cluster_.Connect(Options(0), true, Soon()).value();
  ASSERT_OK(worker->Create({Table(), Dense()}, Soon()));
  ASSERT_OK(Move("emb", 0, 2, 4));
  ASSERT_OK(Move("w", 0, 2, 1));
  const auto reader = cluster_.Connect(Options(-1), true, Soon()).value();
  const auto scanner = cluster_.Connect(Options(-1), true, Soon()).value();
  ASSERT_OK(reader->Describe(Soon()).status());
  ASSERT_OK(scanner->Describe(Soon()).status());
  EXPECT_EQ(Pull(*reader)[2], 0);
  ASSERT_OK(worker->DropJob(Soon()));
  ASSERT_OK(worker->Create({Table(), Dense()}, Soon()));
  ASSERT_OK(PushOnes(*worker, {1, 2, 3}));
  EXPECT_EQ(Pull(*reader), Pull(*worker));
  EXPECT_THAT(PullDense(*reader), Each(-1));
  const auto see = [&](int64_t, absl::Span<const std::byte>) {};
  const absl::Status first = scanner->Scan("emb", see, Soon());
  EXPECT_TRUE(absl::IsAborted(first)) << first;
  EXPECT_OK(scanner->Scan("emb", see, Soon()));
}

// Each time, one of the movers gives up and reports it.
TEST_F(MovesTest, TwoMoversOfAVariableLoseNothing) {
  Begin();
  auto worker = cluster_.Connect(Options(0), true, Soon()).value();
  ASSERT_OK(worker->Create({Table(), Dense()}, Soon()));
  std::atomic<bool> stop{false};
  Counted counted;
  std::thread pushing([&] { PushUntil(*worker, 1, stop, counted); });
  std::atomic<int> moves{0};
  const auto keep_moving = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 80; ++i) {
      const auto source = static_cast<int32_t>(random() % kServers);
      const auto target = static_cast<int32_t>((source + 1 + random() % 2) % kServers);
      const VariableSpec now = Now("emb");
      if (PiecesOn(now, source) == 0) continue;
      const auto moved = MoveSome(now, source, target, 1 + random() % 4, kServers, moves_);
      EXPECT_TRUE(moved.ok() || absl::IsFailedPrecondition(moved.status())) << moved.status();
      moves += moved.ok();
    }
  };
  std::thread other([&] { keep_moving(1); });
  keep_moving(2);
  other.join();
  stop = true;
  pushing.join();
  EXPECT_GT(moves, 0);
  std::vector<float> expected(kKeys * 2);
  for (int64_t k = 0; k < kKeys; ++k) {
    expected[k * 2] = expected[k * 2 + 1] = -static_cast<float>(counted.keys[k]);
  }
  EXPECT_EQ(Pull(*worker), expected);
}

// The mover finds no memory for the reply that has the last changes.
class LosesAReply final : public MoveServers {
 public:
  LosesAReply(MoveServers& servers, std::function<void()> before_hold)
      : servers_(servers), before_hold_(std::move(before_hold)) {}
  absl::StatusOr<wire::MoveReply> Move(int32_t server, const wire::MoveRequest& request) override {
    const bool holds = request.action == wire::MoveAction::HOLD;
    if (holds) before_hold_();
    absl::StatusOr<wire::MoveReply> reply = servers_.Move(server, request);
    const bool loses = held_ && request.action == wire::MoveAction::READ;
    held_ = holds;
    if (loses) return absl::ResourceExhaustedError("no memory for the reply");
    return reply;
  }
  absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) override {
    return servers_.Create(server, job, spec);
  }

 private:
  MoveServers& servers_;
  const std::function<void()> before_hold_;
  bool held_ = false;  // HOLD was the last step
};

TEST_F(MovesTest, AReadWhoseReplyTheMoverLosesIsNotRepeated) {
  Begin();
  const auto worker = cluster_.Connect(Options(0), true, Soon()).value();
  ASSERT_OK(worker->Create({Table(), Dense()}, Soon()));
  std::vector<int64_t> keys(kKeys);
  std::iota(keys.begin(), keys.end(), 0);
  ASSERT_OK(PushOnes(*worker, keys));
  LosesAReply loses(moves_, [&] { EXPECT_OK(PushOnes(*worker, keys)); });
  EXPECT_THAT(MoveSome(Now("emb"), 0, 2, 4, kServers, loses),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("for the reply")));
  EXPECT_THAT(Pull(*worker), Each(-2));
  ASSERT_OK(Move("emb", 0, 2, 4));
  EXPECT_THAT(Pull(*worker), Each(-2));
}

INSTANTIATE_TEST_SUITE_P(Links, BusyMovesTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("InProcess") : std::string("Sockets");
});

// One of two workers whose steps change every row of both variables by -1: each worker has every
// other key. The rows that a step pulls contain all previous steps.
void TrainInStep(PsClient& client, int32_t worker, int steps) {
  std::vector<int64_t> keys, all_keys;
  for (int64_t k = 0; k < kKeys; ++k) {
    all_keys.push_back(k);
    if (k % 2 == worker) keys.push_back(k);
  }
  const std::vector<float> twos(keys.size() * 2, 2), ones(12, 1);
  const std::vector<PushSource> gradients = {
      {.variable = "emb",
       .part = Part::kKeys,
       .ids = keys,
       .values = AsBytes(absl::MakeConstSpan(twos)),
       .format = worker == 0 ? ValueFormat::kPlain : ValueFormat::kFloat16},
      {.variable = "w", .values = AsBytes(absl::MakeConstSpan(ones))}};
  for (int step = 0; step <= steps; ++step) {
    std::vector<float> rows(kKeys * 2, 1), dense(12, 1);
    const std::vector<PullTarget> targets = {
        {.variable = "emb",
         .part = Part::kKeys,
         .ids = all_keys,
         .out = AsWritableBytes(absl::MakeSpan(rows))},
        {.variable = "w", .out = AsWritableBytes(absl::MakeSpan(dense))}};
    const auto sources = step == 0 ? absl::Span<const PushSource>() : gradients;
    ASSERT_OK(client.Step(sources, "", targets, Soon())) << step;
    ASSERT_THAT(rows, Each(-step));
    ASSERT_THAT(dense, Each(-step));
  }
  ASSERT_OK(client.EndSteps(Soon()));
}

// Every step counts once on every row, on whichever server the row was when the step closed.
TEST_F(MovesTest, SynchronousStepsContinueWhileRowsMove) {
  constexpr int kWorkers = 2;
  constexpr int kSteps = 150;
  Begin();
  std::vector<std::unique_ptr<PsClient>> workers;
  for (int32_t w = 0; w < kWorkers; ++w) {
    ClientOptions options = Options(w);
    options.consistency.mode = ConsistencyMode::kSync;
    options.expected_workers = kWorkers;
    workers.push_back(cluster_.Connect(options, true, Soon()).value());
    ASSERT_OK(workers.back()->Create({Table(), Dense()}, Soon()));
  }
  std::atomic<int> running{kWorkers};
  std::vector<std::thread> threads;
  threads.reserve(kWorkers);
  for (int32_t w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      TrainInStep(*workers[w], w, kSteps);
      --running;
    });
  }
  std::mt19937 random(7);
  int moves = 0;
  while (running.load() > 0) {
    const char* const name = random() % 2 == 0 ? "emb" : "w";
    const auto source = static_cast<int32_t>(random() % kServers);
    const auto target = static_cast<int32_t>((source + 1 + random() % (kServers - 1)) % kServers);
    const VariableSpec now = Now(name);
    if (PiecesOn(now, source) == 0) continue;
    const auto moved = Move(name, source, target, 1 + random() % 2);
    if (running.load() == 0) break;  // no worker closes steps any longer
    ASSERT_OK(moved);
    ++moves;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(moves, 5);
  EXPECT_THAT(PullDense(*tool_), Each(-kSteps));
  EXPECT_THAT(Pull(*tool_), Each(-kSteps));
}

}  // namespace
}  // namespace cairn::test
