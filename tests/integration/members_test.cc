// Servers join and leave while workers push: every push counts once, on whichever server its rows
// are.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_cluster.h"
#include "tests/support/row_moves.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "thrift/ParameterServer.h"
#include "thrift/limits.h"
#include "worker/client/moves/row_mover.h"
#include "worker/client/ps_client.h"
#include "worker/ctl/cluster_commands.h"

namespace cairn::test {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kKeys = 64;
constexpr int kWorkers = 2;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

VariableSpec Table() {
  VariableSpec spec{.name = "emb",
                    .kind = VariableKind::kEmbedding,
                    .shape = {1},
                    .touched_rows = TouchedRows::kPushed,
                    .bucket_ps = {0, 1, 0, 1, 0, 1, 0, 1}};
  spec.optimizer.learning_rate.arguments["learning_rate"] = 1;
  spec.initializer.type = "zeros";
  return spec;
}

class MembersTest : public ::testing::Test {
 protected:
  explicit MembersTest(absl::Duration snapshot_interval = EngineOptions().snapshot_interval)
      : cluster_(2, Durability::kSnapshot, 0, snapshot_interval) {
    first_ = {cluster_.address(0), cluster_.address(1)};
  }

  // Connects by the original cluster file, whatever servers have joined since.
  absl::StatusOr<std::unique_ptr<PsClient>> Connect(
      int32_t worker, ConsistencyMode mode = ConsistencyMode::kAsync) {
    ClientOptions options;
    options.consistency.mode = mode;
    if (mode == ConsistencyMode::kSync) options.expected_workers = kWorkers;
    options.job = "job";
    options.worker = worker;
    options.task = worker < 0 ? "reader" : absl::StrCat("worker:", worker);
    options.servers = first_;
    options.ps_wait = absl::Seconds(worker < 0 ? 1 : 30);
    return PsClient::Connect(options, Soon());
  }
  absl::StatusOr<wire::ChangeMembersReply> Change(int32_t server, wire::MembersAction::type action,
                                                  int32_t index,
                                                  std::vector<wire::LastWord> words = {}) {
    wire::ChangeMembersRequest request;
    request.caller.job = "tool";
    request.action = action;
    request.index = index;
    if (action == wire::MembersAction::ADD) request.address = cluster_.address(index);
    request.last_words = std::move(words);
    wire::ChangeMembersReply reply;
    try {
      cluster_.service(server).change_members(reply, request);
    } catch (const wire::ServerError& error) {
      return FromServerError(error);
    }
    return reply;
  }
  absl::Status Add(int32_t index) { return Change(0, wire::MembersAction::ADD, index).status(); }
  absl::Status Remove(int32_t index) {
    ASSIGN_OR_RETURN(wire::ChangeMembersReply closed,
                     Change(index, wire::MembersAction::CLOSE, index));
    return Change(0, wire::MembersAction::REMOVE, index, std::move(closed.last_words)).status();
  }
  // Whether ps:0 regards `worker` as live.
  bool IsLive(int32_t worker) {
    wire::Caller caller;
    caller.job = "job";
    wire::WhyReply reply;
    cluster_.service(0).why(reply, caller);
    return std::any_of(reply.workers.begin(), reply.workers.end(),
                       [worker](const wire::WorkerStanding& standing) {
                         return standing.worker == worker && standing.state == "live";
                       });
  }
  // Moves all rows of `source` to `target`.
  absl::Status Move(int32_t source, int32_t target, std::vector<int32_t> servers) {
    ASSIGN_OR_RETURN(const std::vector<VariableSpec> specs, reader_->Describe(Soon()));
    const RowMove move{.job = "job",
                       .now = specs[0],
                       .next = NextMap(specs[0], source, target, kKeys),
                       .source = source,
                       .target = target,
                       .servers = std::move(servers)};
    return MoveRows(move, {.busy_fraction = 1}, moves_, Soon()).status();
  }

  static absl::Status Push(PsClient& client, const std::string& position) {
    std::vector<int64_t> keys(kKeys);
    for (int64_t k = 0; k < kKeys; ++k) keys[static_cast<size_t>(k)] = k;
    const std::vector<float> ones(kKeys, 1);
    return client.Push({{.variable = "emb",
                         .part = Part::kKeys,
                         .ids = keys,
                         .values = AsBytes(absl::MakeConstSpan(ones))}},
                       position, Soon());
  }

 public:
  // The value that all keys have; fails if they differ.
  static float Pull(PsClient& client) {
    std::vector<int64_t> keys(kKeys);
    for (int64_t k = 0; k < kKeys; ++k) keys[static_cast<size_t>(k)] = k;
    std::vector<float> out(kKeys);
    EXPECT_OK(client.Pull({{.variable = "emb",
                            .part = Part::kKeys,
                            .ids = keys,
                            .out = AsWritableBytes(absl::MakeSpan(out))}},
                          Soon()));
    EXPECT_THAT(out, ::testing::Each(out[0]));
    return out[0];
  }

 protected:
  EngineCluster cluster_;
  EngineMoves moves_{cluster_};
  std::vector<std::string> first_;
  std::unique_ptr<PsClient> reader_;
};

// Pushes in a thread until stopped.
class Pushing {
 public:
  explicit Pushing(PsClient* client, absl::Status (*push)(PsClient&, const std::string&))
      : thread_([this, client, push] {
          while (!stop_ && status_.ok()) {
            status_ = push(*client, absl::StrCat(pushes_ + 1));
            if (status_.ok()) ++pushes_;
          }
        }) {}
  ~Pushing() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Stops, and returns the number of pushes.
  int64_t Stop() {
    stop_ = true;
    thread_.join();
    EXPECT_OK(status_);
    return pushes_;
  }
  // Returns when `more` further pushes have completed.
  void Await(int64_t more) const {
    const int64_t until = pushes_ + more;
    const Deadline deadline = Soon();
    while (pushes_ < until && !deadline.Expired()) std::this_thread::yield();
    EXPECT_GE(pushes_, until);
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> pushes_{0};
  absl::Status status_;
  std::thread thread_;
};

TEST_F(MembersTest, EveryPushCountsOnceWhileServersJoinAndLeave) {
  std::vector<std::unique_ptr<PsClient>> workers;
  for (int32_t w = 0; w < kWorkers; ++w) workers.push_back(Connect(w).value());
  for (const auto& worker : workers) ASSERT_OK(worker->Create({Table()}, Soon()));
  reader_ = Connect(-1).value();
  {
    std::vector<std::unique_ptr<Pushing>> pushing;
    for (const auto& worker : workers) {
      pushing.push_back(std::make_unique<Pushing>(worker.get(), &MembersTest::Push));
    }
    const auto await = [&] {
      for (const auto& one : pushing) one->Await(20);
    };
    await();
    ASSERT_EQ(cluster_.Add(), 2);
    ASSERT_OK(Add(2));
    ASSERT_OK(Move(1, 2, {0, 1, 2}));
    await();
    ASSERT_OK(Remove(1));
    EXPECT_THAT(Add(1).message(), HasSubstr("the next one is ps:3"));
    cluster_.Stop(1);  // clients that do not know yet notice it now
    await();
    ASSERT_EQ(cluster_.Add(), 3);
    ASSERT_OK(Add(3));
    ASSERT_OK(Move(0, 3, {0, 2, 3}));
    await();
    int64_t pushes = 0;
    for (const auto& one : pushing) pushes += one->Stop();
    EXPECT_EQ(Pull(*workers[0]), -static_cast<float>(pushes));
    EXPECT_EQ(Pull(*reader_), -static_cast<float>(pushes));
  }
  EXPECT_THAT(workers[0]->servers(), ElementsAre(0, 2, 3));
  // A new start with the old cluster file continues where the previous one was.
  const float before = Pull(*workers[0]);
  for (const auto& worker : workers) ASSERT_OK(worker->Flush(Soon()));
  workers.clear();
  const auto again = Connect(0).value();
  ASSERT_OK(again->Describe(Soon()).status());
  EXPECT_THAT(again->servers(), ElementsAre(0, 2, 3));
  EXPECT_NE(again->position(), "");
  ASSERT_OK(Push(*again, "next"));
  EXPECT_EQ(Pull(*again), before - 1);
}

TEST_F(MembersTest, AStartAfterAServerHasLeftResumes) {
  auto worker = Connect(0).value();
  ASSERT_OK(worker->Create({Table()}, Soon()));
  reader_ = Connect(-1).value();
  for (int i = 1; i <= 5; ++i) ASSERT_OK(Push(*worker, absl::StrCat(i)));
  worker.reset();  // without a push after the move
  ASSERT_OK(Move(1, 0, {0, 1}));
  ASSERT_OK(Remove(1));
  cluster_.Stop(1);
  cluster_.Restart(0);  // its knowledge of servers is on its disk
  worker = Connect(0).value();
  EXPECT_EQ(worker->position(), "5");
  EXPECT_THAT(worker->servers(), ElementsAre(0));
  ASSERT_OK(worker->Describe(Soon()).status());
  EXPECT_EQ(Pull(*worker), -5);
  VariableSpec other = Table();
  other.name = "other";
  other.bucket_ps.clear();
  ASSERT_OK(worker->Create({other}, Soon()));  // placed on the current servers
  EXPECT_EQ(Pull(*reader_), -5);               // its map is older
}

// A mover dies after a server has given its last rows away, and only that server knows who has
// them.
class DyingMover final : public MoveServers {
 public:
  DyingMover(MoveServers* servers, int32_t source) : servers_(*servers), source_(source) {}
  absl::StatusOr<wire::MoveReply> Move(int32_t server, const wire::MoveRequest& request) override {
    if (dead_) return absl::UnavailableError("the mover has died");
    dead_ = request.action == wire::MoveAction::COMMIT && server == source_;
    return servers_.Move(server, request);
  }
  absl::Status Create(int32_t server, const std::string& job, const VariableSpec& spec) override {
    return servers_.Create(server, job, spec);
  }

 private:
  MoveServers& servers_;
  const int32_t source_;
  bool dead_ = false;
};

TEST_F(MembersTest, AServerThatLeavesPassesOnWhatOnlyItKnows) {
  const auto worker = Connect(0).value();
  ASSERT_OK(worker->Create({Table()}, Soon()));
  ASSERT_OK(Push(*worker, "1"));
  reader_ = Connect(-1).value();
  DyingMover mover(&moves_, 1);
  const std::vector<VariableSpec> specs = reader_->Describe(Soon()).value();
  const RowMove move{.job = "job",
                     .now = specs[0],
                     .next = NextMap(specs[0], 1, 0, kKeys),
                     .source = 1,
                     .target = 0,
                     .servers = {0, 1}};
  ASSERT_FALSE(MoveRows(move, {.busy_fraction = 1}, mover, Soon()).ok());
  ServersOptions removed;
  removed.target.servers = absl::StrCat(first_[0], ",", first_[1]);
  removed.task = "ps:1";
  const absl::StatusOr<Answer> answer = RunServersRemove(removed);
  ASSERT_OK(answer);
  EXPECT_OK(answer->problem);
  cluster_.Stop(1);
  const auto late = Connect(-1).value();
  ASSERT_OK(late->Describe(Soon()).status());
  EXPECT_EQ(Pull(*late), -1);
  ASSERT_OK(Push(*worker, "2"));
  EXPECT_EQ(Pull(*worker), -2);
}

// Snapshots run only on request.
class LongEpochsTest : public MembersTest {
 protected:
  LongEpochsTest() : MembersTest(absl::Hours(1)) {}
};

// The server has lost the last push, unless the flush of the previous push made it durable.
TEST_F(LongEpochsTest, AStartAfterTheCrashOfAJoinedServerDoesNotStartOver) {
  auto worker = Connect(0).value();
  ASSERT_OK(worker->Create({Table()}, Soon()));
  reader_ = Connect(-1).value();
  for (int i = 1; i <= 3; ++i) ASSERT_OK(Push(*worker, absl::StrCat(i)));
  ASSERT_EQ(cluster_.Add(), 2);
  ASSERT_OK(Add(2));
  ASSERT_OK(Move(1, 2, {0, 1, 2}));
  const int64_t of_three = worker->counters().retained_bytes;
  ASSERT_OK(Push(*worker, "4"));
  const Deadline deadline = Soon();  // until some of it is durable
  while (worker->counters().retained_bytes >= of_three / 3 * 4 && !deadline.Expired()) {
    std::this_thread::yield();
  }
  ASSERT_OK(Push(*worker, "5"));
  worker.reset();
  cluster_.Crash(2);
  worker = Connect(0).value();
  EXPECT_THAT(worker->position(), AnyOf("4", "5"));
  ASSERT_OK(worker->Describe(Soon()).status());
  if (worker->position() == "4") {
    ASSERT_OK(Push(*worker, "5"));
  }
  EXPECT_EQ(Pull(*worker), -5);
}

// No heartbeat reports the change, because none runs yet.
TEST_F(MembersTest, AStartDoesNotWaitForAServerThatIsLeaving) {
  auto worker = Connect(0).value();
  ASSERT_OK(worker->Create({Table()}, Soon()));
  reader_ = Connect(-1).value();
  for (int i = 1; i <= 5; ++i) ASSERT_OK(Push(*worker, absl::StrCat(i)));
  ASSERT_OK(worker->Leave(Soon()));
  worker.reset();
  ASSERT_OK(Move(1, 0, {0, 1}));
  wire::ChangeMembersReply closed = Change(1, wire::MembersAction::CLOSE, 1).value();
  cluster_.Stop(1);
  std::thread starting([&] { worker = Connect(0).value(); });
  const Deadline deadline = Soon();
  while (!IsLive(0) && !deadline.Expired()) std::this_thread::yield();  // until ps:0 has its hello
  ASSERT_OK(Change(0, wire::MembersAction::REMOVE, 1, std::move(closed.last_words)));
  starting.join();
  EXPECT_EQ(worker->position(), "5");
  EXPECT_THAT(worker->servers(), ElementsAre(0));
  ASSERT_OK(worker->Describe(Soon()).status());
  EXPECT_EQ(Pull(*worker), -5);
  ASSERT_OK(Push(*worker, "6"));
  EXPECT_EQ(Pull(*worker), -6);
}

// The server that left has no files in the checkpoint, but the workers' progress there is known.
TEST_F(MembersTest, ACheckpointAfterAServerHasLeftIsComplete) {
  auto worker = Connect(0).value();
  ASSERT_OK(worker->Create({Table()}, Soon()));
  reader_ = Connect(-1).value();
  for (int i = 1; i <= 5; ++i) ASSERT_OK(Push(*worker, absl::StrCat(i)));
  ASSERT_EQ(cluster_.Add(), 2);
  ASSERT_OK(Add(2));
  ASSERT_OK(Move(1, 2, {0, 1, 2}));
  const TempDir folder;
  // The worker may not know ps:2 yet.
  EXPECT_EQ(worker->Checkpoint(folder.path(), "joined", Soon()).value().size(), 3);
  ASSERT_OK(Remove(1));
  cluster_.Stop(1);
  const std::vector<ServerCheckpoint> parts =
      worker->Checkpoint(folder.path(), "made", Soon()).value();
  ASSERT_EQ(parts.size(), 3);
  EXPECT_THAT(parts[1].files, IsEmpty());
  ASSERT_NE(FindWorker(parts[1], 0), nullptr);
  EXPECT_EQ(FindWorker(parts[1], 0)->sequence, 5);
  // ps:1 can no longer delete its part.
  EXPECT_TRUE(std::filesystem::exists(folder.Join("joined/ps-1")));
  ASSERT_OK(worker->DropCheckpoint(folder.path(), "joined", Soon()));
  EXPECT_FALSE(std::filesystem::exists(folder.Join("joined")));
  RestoreSource source{.job = "job", .timeline = 1};
  for (const ServerCheckpoint& part : parts) {
    source.folders.push_back(
        {absl::StrCat(folder.path(), "/made/ps-", part.server), part.files, part.workers});
  }
  reader_ = Connect(-1).value();
  EXPECT_THAT(reader_->Restore(source, Soon()).message(), HasSubstr("servers have joined or left"));
  worker->Leave(Soon()).IgnoreError();
  for (const int32_t servers : {1, 2, 3}) {
    SCOPED_TRACE(servers);
    EngineCluster restored(servers);
    ClientOptions options{.job = "job"};
    options.task = "restoring";
    const auto tool = restored.Connect(options, /*in_process=*/false, Soon()).value();
    ASSERT_OK(tool->Restore(source, Soon()));
    options.worker = 0;
    const auto again = restored.Connect(options, /*in_process=*/false, Soon()).value();
    EXPECT_EQ(again->position(), "5");
    ASSERT_OK(again->Describe(Soon()).status());
    EXPECT_EQ(Pull(*again), -5);
    ASSERT_OK(Push(*again, "6"));
    EXPECT_EQ(Pull(*again), -6);
  }
  // If the checkpoint says that the server had rows but no files, something is missing.
  source.folders[2].files.clear();
  EngineCluster restored(1);
  const auto tool = restored.Connect({.job = "job", .task = "restoring"}, false, Soon()).value();
  const absl::Status partial = tool->Restore(source, Soon());
  EXPECT_EQ(partial.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(partial.message(), HasSubstr("has rows on ps:2"));
}

TEST_F(MembersTest, InvalidChangesAreRefused) {
  const auto worker = Connect(0).value();
  ASSERT_OK(worker->Create({Table()}, Soon()));
  EXPECT_THAT(Remove(0).message(), HasSubstr("ps:0 cannot leave"));
  EXPECT_THAT(Remove(1).message(), HasSubstr("emb of job job"));
  EXPECT_THAT(Change(1, wire::MembersAction::CLOSE, 0).status().message(),
              HasSubstr("this is ps:1"));
  EXPECT_THAT(Change(0, wire::MembersAction::REMOVE, 2).status().message(),
              HasSubstr("there is no ps:2"));
  EXPECT_THAT(Change(1, wire::MembersAction::REMOVE, 1).status().message(), HasSubstr("ask ps:0"));
  ASSERT_EQ(cluster_.Add(), 2);
  ASSERT_EQ(cluster_.Add(), 3);
  EXPECT_THAT(Add(3).message(), HasSubstr("the next one is ps:2"));
  ASSERT_OK(Add(1));  // a server of the cluster file
  ASSERT_OK(Add(2));
  ASSERT_OK(Add(2));
  ASSERT_OK(Remove(2));
  ASSERT_OK(Change(2, wire::MembersAction::CLOSE, 2));  // already closed
  // A closed server accepts nothing.
  VariableSpec spec = Table();
  spec.name = "late";
  spec.bucket_ps = {2};
  EXPECT_THAT(moves_.Create(2, "job", spec).message(),
              HasSubstr("start a server with the next index"));
}

// Otherwise ps:0 would keep its part of a variable that nobody can complete.
TEST_F(MembersTest, ACreateWhileAServerLeavesCreatesNothingOrOnTheOthers) {
  const auto worker = Connect(0).value();
  VariableSpec spec = Table();
  spec.bucket_ps.clear();
  wire::ChangeMembersReply closed = Change(1, wire::MembersAction::CLOSE, 1).value();
  const absl::Status leaving = worker->Create({spec}, Soon());
  EXPECT_TRUE(absl::IsUnavailable(leaving)) << leaving;
  EXPECT_THAT(leaving.message(), HasSubstr("is leaving the cluster"));
  EXPECT_THAT(leaving.message(), HasSubstr("create it again when cairnctl servers remove ps:1"));
  EXPECT_THAT(worker->Describe(Soon()).value(), IsEmpty());
  ASSERT_OK(Change(0, wire::MembersAction::REMOVE, 1, std::move(closed.last_words)));
  ASSERT_OK(worker->Create({spec}, Soon()));
  EXPECT_THAT(worker->Describe(Soon()).value()[0].bucket_ps, ::testing::Each(0));
}

// One of several workers; each of their steps changes every key by -1.
class Stepping {
 public:
  Stepping(PsClient* client, const std::atomic<int64_t>* last)
      : thread_([this, client, last] { Run(*client, *last); }) {}
  ~Stepping() { Join(); }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  int64_t done() const { return done_; }

 private:
  void Run(PsClient& client, const std::atomic<int64_t>& last) {
    std::vector<int64_t> keys(kKeys);
    for (int64_t k = 0; k < kKeys; ++k) keys[static_cast<size_t>(k)] = k;
    const std::vector<float> ones(kKeys, 1);
    const std::vector<PushSource> gradients = {{.variable = "emb",
                                                .part = Part::kKeys,
                                                .ids = keys,
                                                .values = AsBytes(absl::MakeConstSpan(ones))}};
    for (int64_t step = 0; step <= last; ++step) {
      std::vector<float> rows(kKeys, 1);
      const std::vector<PullTarget> targets = {{.variable = "emb",
                                                .part = Part::kKeys,
                                                .ids = keys,
                                                .out = AsWritableBytes(absl::MakeSpan(rows))}};
      const auto pushed = step == 0 ? absl::Span<const PushSource>() : gradients;
      ASSERT_OK(client.Step(pushed, absl::StrCat(step), targets, Soon())) << step;
      // The values contain all previous steps.
      ASSERT_THAT(rows, ::testing::Each(-static_cast<float>(step)));
      done_ = step;
    }
    ASSERT_OK(client.EndSteps(Soon()));
  }

  std::atomic<int64_t> done_{0};
  std::thread thread_;
};

// A checkpoint after `steps` resumes at that step on other servers, whatever the departed servers
// held.
void CheckCheckpoint(PsClient& worker, int64_t steps, size_t servers) {
  const TempDir folder;
  const auto parts = worker.Checkpoint(folder.path(), "made", Soon());
  ASSERT_OK(parts);
  ASSERT_EQ(parts->size(), servers);
  RestoreSource source{.job = "job", .timeline = 1};
  for (const ServerCheckpoint& part : *parts) {
    ASSERT_NE(FindWorker(part, kStepWorker), nullptr);
    EXPECT_EQ(FindWorker(part, kStepWorker)->sequence, steps) << part.server;
    source.folders.push_back(
        {absl::StrCat(folder.path(), "/made/ps-", part.server), part.files, part.workers});
  }
  EngineCluster restored(2);
  ClientOptions options{.job = "job"};
  options.task = "restoring";
  const auto tool = restored.Connect(options, /*in_process=*/false, Soon()).value();
  ASSERT_OK(tool->Restore(source, Soon()));
  options.worker = 0;
  options.consistency.mode = ConsistencyMode::kSync;
  const auto again = restored.Connect(options, /*in_process=*/false, Soon()).value();
  EXPECT_EQ(again->position(), absl::StrCat(steps));
  ASSERT_OK(again->Describe(Soon()).status());
  EXPECT_EQ(MembersTest::Pull(*again), -static_cast<float>(steps));
}

TEST_F(MembersTest, SynchronousStepsContinueWhileServersJoinAndLeave) {
  std::atomic<int64_t> last{std::numeric_limits<int64_t>::max()};
  std::vector<std::unique_ptr<PsClient>> workers;
  for (int32_t w = 0; w < kWorkers; ++w) {
    workers.push_back(Connect(w, ConsistencyMode::kSync).value());
    ASSERT_OK(workers.back()->Create({Table()}, Soon()));
  }
  reader_ = Connect(-1).value();
  std::vector<std::unique_ptr<Stepping>> stepping;
  for (const auto& worker : workers) {
    stepping.push_back(std::make_unique<Stepping>(worker.get(), &last));
  }
  const auto await = [&](int64_t more) {
    const int64_t until = stepping[0]->done() + more;
    const Deadline deadline = Soon();
    for (const auto& one : stepping) {
      while (one->done() < until && !deadline.Expired()) std::this_thread::yield();
      EXPECT_GE(one->done(), until);
    }
  };
  await(20);
  ASSERT_EQ(cluster_.Add(), 2);
  ASSERT_OK(Add(2));
  ASSERT_OK(Move(1, 2, {0, 1, 2}));
  await(20);
  ASSERT_OK(Remove(1));
  cluster_.Stop(1);
  await(20);
  ASSERT_EQ(cluster_.Add(), 3);
  ASSERT_OK(Add(3));
  await(20);  // it holds no rows yet
  ASSERT_OK(Move(0, 3, {0, 2, 3}));
  ASSERT_OK(Move(2, 0, {0, 2, 3}));
  await(20);
  ASSERT_OK(Remove(2));
  // A heartbeat reports it.
  for (const Deadline deadline = Soon(); workers[0]->servers().size() > 2 && !deadline.Expired();) {
    std::this_thread::yield();
  }
  await(20);
  last = stepping[0]->done() + 100;
  for (const auto& one : stepping) one->Join();
  EXPECT_EQ(Pull(*workers[0]), -static_cast<float>(last));
  EXPECT_THAT(workers[0]->servers(), ElementsAre(0, 3));
  CheckCheckpoint(*workers[0], last, /*servers=*/4);
  // New starts with the old cluster file continue where the previous ones were.
  for (const auto& worker : workers) ASSERT_OK(worker->Flush(Soon()));
  workers.clear();
  const auto again = Connect(0, ConsistencyMode::kSync).value();
  EXPECT_EQ(again->position(), absl::StrCat(last.load()));
  EXPECT_THAT(again->servers(), ElementsAre(0, 3));
}

}  // namespace
}  // namespace cairn::test
