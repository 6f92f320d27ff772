// The incarnation of a job that a server holds: who assigns it, what it survives, and which callers
// it excludes; and optimizer arguments that change within one.
#include "common/timeline.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "ps_server/jobs/session.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"
#include "thrift/number_limits.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TimelineTest : public ServerTest {
 protected:
  // Starts the server as `index` of two.
  void StartAs(int32_t index) {
    options_.server_index = index;
    options_.server_count = 2;
    ASSERT_NO_FATAL_FAILURE(Start());
  }

  absl::StatusOr<wire::HelloReply> Hello(int64_t timeline, int64_t incarnation = 0,
                                         int32_t worker = 0) {
    wire::HelloRequest request;
    request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    request.job = "job";
    request.task_type = "worker";
    request.worker = worker;
    request.incarnation = incarnation;
    request.timeline = timeline;
    wire::HelloReply reply;
    const absl::Status status = CallStatus([&] { service().hello(reply, request); });
    if (!status.ok()) return status;
    return reply;
  }

  int64_t Held() {
    const auto described = Client().Describe();
    EXPECT_OK(described);
    return described.ok() ? described->timeline : -1;
  }

  // A dense variable that is entirely on one server.
  static wire::VariableSpec Spec(int32_t server) {
    wire::VariableSpec spec = DenseSpec("w", {2}, WireOptimizer("sgd", 1));
    wire::DenseShard shard;
    shard.rows = 2;
    shard.ps = server;
    spec.__set_shards({shard});
    return spec;
  }
};

TEST_F(TimelineTest, TheFirstServerBeginsTheLifeThatTheFirstWorkerProposes) {
  StartAs(0);
  EXPECT_EQ(Held(), 0);
  const int64_t proposed = NewTimeline(2, 0);
  EXPECT_EQ(Hello(proposed)->timeline, proposed);
  // The server never refuses: its answer decides.
  EXPECT_EQ(Hello(NewTimeline(2, 0), 0, 1)->timeline, proposed);
  EXPECT_EQ(Held(), proposed);
  Restart();
  EXPECT_EQ(Held(), proposed);
  wire::ServerState state;
  service().drop_job(state, Client().caller());
  EXPECT_EQ(Held(), 0);
  EXPECT_NE(Hello(NewTimeline(2, 0))->timeline, proposed);
}

TEST_F(TimelineTest, ALifeSurvivesACrashWhateverTheDurability) {
  for (const Durability durability : {Durability::kOff, Durability::kSnapshot, Durability::kLog}) {
    options_.durability = durability;
    options_.snapshot_interval = absl::Hours(1);
    options_.directory = folder_.Join(absl::StrCat("store-", static_cast<int>(durability)));
    StartAs(0);
    const int64_t begun = Hello(NewTimeline(2, 0))->timeline;
    StartFromCopy();
    EXPECT_EQ(Held(), begun);
  }
}

TEST_F(TimelineTest, WorkersOfProgramsThatKnowNoTimelinesBeginOneOfTheFirstServerAlone) {
  StartAs(0);
  const int64_t begun = Hello(0)->timeline;
  EXPECT_GT(begun, 0);
  EXPECT_EQ(ServersOfTimeline(begun), 1);
}

// A store from before timelines existed: the other servers may hold nothing of the job.
TEST_F(TimelineTest, AJobThatHasVariablesBeginsOneOfTheFirstServerAlone) {
  StartAs(0);
  ASSERT_OK(Client().Create({Spec(0)}));
  EXPECT_EQ(Held(), 0);
  EXPECT_EQ(ServersOfTimeline(Hello(NewTimeline(2, 0))->timeline), 1);
}

TEST_F(TimelineTest, OtherServersTakeOverAndRefuseAnotherLifeThatHasVariables) {
  StartAs(1);
  const int64_t first = NewTimeline(2, 0), second = NewTimeline(2, first);
  // A worker that returns to a restarted server does not tell it the timeline.
  EXPECT_EQ(Hello(0, 1)->timeline, 0);
  EXPECT_EQ(Hello(first, 1)->timeline, first);
  // Nothing would be lost with it.
  EXPECT_EQ(Hello(second, 1)->timeline, second);
  ASSERT_OK(Client().Create({Spec(1)}));
  EXPECT_THAT(Hello(first, 2).status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("hello to ps:1: it holds job job "
                                                                  "as it began at ")));
  EXPECT_EQ(Held(), second);
  Restart();
  EXPECT_EQ(Hello(second, 2)->timeline, second);
}

// The server would look as if it had lost the job.
TEST_F(TimelineTest, AJobWithALifeIsNotForgottenToMakeRoom) {
  options_.max_jobs = 1;
  options_.lease = absl::Milliseconds(1);
  StartAs(1);
  const int64_t begun = NewTimeline(2, 0);
  ASSERT_OK(Hello(begun, 1));
  TestClient other = Client(1);
  other.caller().job = "other";
  EXPECT_FALSE(other.Create({Spec(1)}).ok());
  EXPECT_EQ(Held(), begun);
}

TEST_F(TimelineTest, ARestoreBeginsALifeThatAWorkerConfirms) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_OK(Client().Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))}));
  const int64_t made = Hello(NewTimeline(1, 0))->timeline;
  wire::RestoreRequest restore;
  MakeCheckpoint(&restore);
  restore.timeline = NewTimeline(1, made);
  StartRestored(restore, 1, 0);
  EXPECT_EQ(Held(), -restore.timeline);
  Restart();
  EXPECT_EQ(Held(), -restore.timeline);
  // The same request, after a lost answer, finds it done; a different request finds another
  // incarnation.
  wire::RestoreReply reply;
  EXPECT_OK(CallStatus([&] { service().restore(reply, restore); }));
  wire::RestoreRequest later = restore;
  later.timeline = NewTimeline(1, restore.timeline);
  EXPECT_THAT(CallStatus([&] { service().restore(reply, later); }),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("drop the job first")));
  EXPECT_EQ(Hello(0)->timeline, restore.timeline);
  EXPECT_EQ(Held(), restore.timeline);
  StartFromCopy();
  EXPECT_EQ(Held(), restore.timeline);
}

// A process of an earlier life of the job may be suspended and wake up, or a heartbeat of it may
// have waited to be read.
class EarlierLifeTest : public TimelineTest {
 protected:
  void SetUp() override {
    options_.wall_clock = [this] { return absl::FromUnixSeconds(now_.load()); };
    ASSERT_NO_FATAL_FAILURE(Start());
  }
  void StartEmptyAs(int32_t index) {
    ASSERT_NO_FATAL_FAILURE(Stop());
    options_.directory = folder_.Join(absl::StrCat("store", index));
    StartAs(index);
  }
  void Drop() {
    wire::ServerState state;
    ASSERT_OK(CallStatus([&] { service().drop_job(state, Client().caller()); }));
  }
  wire::ErrorReason::type Heartbeat(TestClient& client) {
    wire::ServerState state;
    return ReasonOf(CallStatus([&] { service().heartbeat(state, client.caller()); }));
  }
  // The hello of a worker that returns. `known`: its timeline; 0: the client names none.
  wire::ErrorReason::type HelloAgain(const wire::Caller& caller, int64_t known) {
    wire::HelloRequest request;
    request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    request.job = "job";
    request.task_type = "worker";
    request.worker = caller.worker;
    request.incarnation = caller.incarnation;
    if (known != 0) request.__set_known_timeline(known);
    wire::HelloReply reply;
    return ReasonOf(CallStatus([&] { service().hello(reply, request); }));
  }

  std::atomic<int64_t> now_{absl::ToUnixSeconds(absl::Now())};
};

TEST_F(EarlierLifeTest, ItsHeartbeatsDoNotVoidPushes) {
  TestClient before = Joined(0);
  ASSERT_OK(before.Create({Spec(0)}));
  for (int i = 0; i < 3; ++i) ASSERT_OK(before.Push("w", {1, 1}));
  before.caller().through = 3;
  Drop();
  TestClient after = Joined(0);
  ASSERT_OK(after.Create({Spec(0)}));
  EXPECT_EQ(Heartbeat(before), wire::ErrorReason::FENCED);
  ASSERT_OK(after.Push("w", {1, 1}));
  EXPECT_THAT(*after.Pull("w"), ElementsAre(-1, -1));
  EXPECT_EQ(ReasonOf(before.Push("w", {1, 1}).status()), wire::ErrorReason::FENCED);
}

TEST_F(EarlierLifeTest, ItsFencedStartsStayFenced) {
  const wire::Caller first = Joined(0).caller(), second = Joined(0).caller();
  for (const bool restart : {false, true}) {
    Drop();
    now_ += 2;
    if (restart) Restart();
    TestClient next = Joined(0);
    ASSERT_OK(next.Create({Spec(0)}));
    for (const wire::Caller& caller : {first, second}) {
      TestClient earlier = Client(0);
      earlier.caller() = caller;
      earlier.caller().boot_id = next.caller().boot_id;
      EXPECT_EQ(ReasonOf(earlier.Push("w", {1, 1}).status()), wire::ErrorReason::FENCED);
      EXPECT_EQ(HelloAgain(caller, 0), wire::ErrorReason::FENCED);
    }
    EXPECT_OK(next.Push("w", {1, 1}));
  }
}

TEST_F(EarlierLifeTest, ItsOtherWorkersDoNotJoinTheNextOne) {
  TestClient first = Joined(0), second = Joined(1);
  const int64_t earlier = Held();
  Drop();
  TestClient next = Joined(0);
  EXPECT_GT(FirstIncarnation(Held()), second.caller().incarnation);
  for (const int64_t known : {earlier, int64_t{0}}) {
    EXPECT_EQ(Heartbeat(second), wire::ErrorReason::REBOOTED);
    EXPECT_EQ(HelloAgain(second.caller(), known), wire::ErrorReason::FENCED) << known;
  }
  EXPECT_EQ(HelloAgain(next.caller(), Held()), wire::ErrorReason::NONE);
  EXPECT_EQ(HelloAgain(next.caller(), 0), wire::ErrorReason::NONE);
}

// A worker notices that one server has dropped the job, and comes back there, before the restore
// begins. The clock of the restoring task may be behind.
TEST_F(EarlierLifeTest, ItsWorkersThatComeBackBeforeARestoreAreFenced) {
  for (const int32_t index : {0, 1}) {
    SCOPED_TRACE(index);
    ASSERT_NO_FATAL_FAILURE(StartEmptyAs(index));
    const int64_t earlier = NewTimeline(2, 0);
    const int64_t first = FirstIncarnation(earlier) + 1;
    const int64_t incarnation = Hello(earlier, index == 0 ? 0 : first)->incarnation;
    const int64_t other = Hello(earlier, index == 0 ? 0 : first, /*worker=*/1)->incarnation;
    ASSERT_OK(Client().Create({Spec(index)}));
    TestClient before = Client(0);
    before.caller().incarnation = incarnation;
    ASSERT_OK(before.Push("w", {1, 1}));
    wire::RestoreRequest restore;
    MakeCheckpoint(&restore);
    restore.folders.resize(2, restore.folders[0]);  // this server reads its own
    std::erase_if(restore.workers, [](const auto& worker) { return worker.worker == 1; });
    restore.timeline = NewTimeline(2, 0, absl::UnixEpoch() + absl::Hours(24 * 18300));
    for (wire::CheckpointWorker& worker : restore.workers) {
      worker.incarnation = FirstIncarnation(restore.timeline);
    }
    Drop();
    TestClient unknown = Client(1);
    unknown.caller().incarnation = other;
    for (TestClient* client : {&before, &unknown}) {
      EXPECT_EQ(Heartbeat(*client), wire::ErrorReason::REBOOTED);
      EXPECT_EQ(HelloAgain(client->caller(), earlier), wire::ErrorReason::NONE);
      EXPECT_EQ(Heartbeat(*client), wire::ErrorReason::NONE);
    }
    wire::RestoreReply reply;
    ASSERT_OK(CallStatus([&] { service().restore(reply, restore); }));
    for (TestClient* client : {&before, &unknown}) {
      EXPECT_EQ(Heartbeat(*client), wire::ErrorReason::FENCED);
      EXPECT_EQ(ReasonOf(client->Push("w", {1, 1}).status()), wire::ErrorReason::FENCED);
      EXPECT_EQ(HelloAgain(client->caller(), earlier), wire::ErrorReason::FENCED);
    }
    EXPECT_THAT(*Client().Pull("w"), ElementsAre(-1, -1));
  }
}

TEST_F(EarlierLifeTest, ItsWorkersThatComeBackBeforeTheNextOneAreFenced) {
  for (const int32_t index : {0, 1}) {
    SCOPED_TRACE(index);
    ASSERT_NO_FATAL_FAILURE(StartEmptyAs(index));
    const int64_t earlier = NewTimeline(2, 0), later = NewTimeline(2, earlier);
    const auto named = [index](int64_t timeline) {
      return index == 0 ? 0 : FirstIncarnation(timeline) + 1;
    };
    const int64_t incarnation = Hello(earlier, named(earlier), /*worker=*/1)->incarnation;
    ASSERT_OK(Client().Create({Spec(index)}));
    Drop();
    TestClient before = Client(1);
    before.caller().incarnation = incarnation;
    EXPECT_EQ(HelloAgain(before.caller(), earlier), wire::ErrorReason::NONE);
    ASSERT_OK(Hello(later, named(later)));
    ASSERT_OK(Client().Create({Spec(index)}));
    EXPECT_EQ(Heartbeat(before), wire::ErrorReason::REBOOTED);
    EXPECT_EQ(ReasonOf(before.Push("w", {1, 1}).status()), wire::ErrorReason::REBOOTED);
    EXPECT_EQ(HelloAgain(before.caller(), earlier), wire::ErrorReason::FENCED);
    // A hello that was checked before the timeline began here, and admitted afterwards.
    if (index == 1) {
      ASSERT_OK(Hello(later, incarnation, /*worker=*/1));
      EXPECT_EQ(Heartbeat(before), wire::ErrorReason::FENCED);
      EXPECT_EQ(ReasonOf(before.Push("w", {1, 1}).status()), wire::ErrorReason::FENCED);
    }
    EXPECT_THAT(*Client().Pull("w"), ElementsAre(0, 0));
    // The worker's next start joins.
    const absl::StatusOr<wire::HelloReply> next = Hello(later, named(later), /*worker=*/1);
    ASSERT_OK(next);
    TestClient after = Client(1);
    after.caller().incarnation = next->incarnation;
    EXPECT_OK(after.Push("w", {1, 1}));
  }
}

// Clocks of clients differ, and a job may be dropped in its first second.
TEST_F(EarlierLifeTest, ALaterLifeBeginsInALaterSecond) {
  const int64_t first = Hello(NewTimeline(1, 0))->timeline;
  Drop();
  const int64_t second =
      Hello(NewTimeline(1, 0, absl::UnixEpoch() + absl::Hours(24 * 18300)))->timeline;
  EXPECT_GT(FirstIncarnation(second), FirstIncarnation(first));
  Drop();
  // The job can be used again although no later timeline has an incarnation.
  ASSERT_OK(Hello(kMaxIncarnation - 1));
  Drop();
  EXPECT_OK(Hello(NewTimeline(1, 0)));
}

class ArgumentsTest : public ServerTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(Start()); }

  static std::vector<wire::VariableSpec> Specs(double rate) {
    return {DenseSpec("w", {2}, WireOptimizer("sgd", rate)),
            TableSpec("t", 1, WireOptimizer("sgd", rate))};
  }

  static float RowMove(TestClient& client, int64_t key) {
    const float before = client.PullKeys("t", {key})->front();
    EXPECT_OK(client.PushKeys("t", {key}, {1}));
    return before - client.PullKeys("t", {key})->front();
  }
};

TEST_F(ArgumentsTest, AWorkerThatComesBackChangesThemAndARestartKeepsThem) {
  TestClient first = Joined(0);
  ASSERT_OK(first.Create(Specs(1)));
  ASSERT_OK(first.Push("w", {1, 1}));
  EXPECT_FLOAT_EQ(RowMove(first, 7), 1);
  TestClient again = Joined(0);
  ASSERT_OK(again.Create(Specs(0.5)));
  ASSERT_OK(again.Push("w", {1, 1}));
  EXPECT_THAT(*again.Pull("w"), ElementsAre(-1.5f, -1.5f));
  EXPECT_FLOAT_EQ(RowMove(again, 7), 0.5);
  EXPECT_FLOAT_EQ(RowMove(again, 8), 0.5);
  StartFromCopy();
  TestClient later = Joined(0);
  ASSERT_OK(later.Create(Specs(0.5)));
  ASSERT_OK(later.Push("w", {1, 1}));
  EXPECT_FLOAT_EQ(RowMove(later, 7), 0.5);
  const absl::StatusOr<wire::DescribeReply> described = Client().Describe();
  ASSERT_OK(described);
  for (const wire::VariableInfo& info : described->variables) {
    EXPECT_EQ(info.spec.optimizer.learning_rate.arguments.at("learning_rate"), 0.5);
  }
}

TEST_F(ArgumentsTest, NotWhileAnotherLiveWorkerCountsOnThem) {
  TestClient first = Joined(0), second = Joined(1);
  ASSERT_OK(first.Create(Specs(1)));
  // The second worker has requested nothing yet, and gets the first one's decision.
  EXPECT_THAT(
      second.Create(Specs(0.5)),
      StatusIs(StatusCode::kAlreadyExists,
               HasSubstr("optimizer.learning_rate: the job has 1, asked for 0.5; worker 0")));
  EXPECT_EQ(ReasonOf(second.Create(Specs(0.5))), wire::ErrorReason::SPEC_CONFLICT);
  ASSERT_OK(second.Create(Specs(1)));
  // Both start again: the earlier one decides.
  TestClient second_again = Joined(1);
  EXPECT_FALSE(second_again.Create(Specs(0.5)).ok());
  TestClient first_again = Joined(0);
  ASSERT_OK(second_again.Create(Specs(0.5)));
  EXPECT_FALSE(first_again.Create(Specs(1)).ok());
  ASSERT_OK(first_again.Create(Specs(0.5)));
}

TEST_F(ArgumentsTest, ACallerWithoutANumberChangesNothingAndNobodyTheTypeOrTheSlots) {
  TestClient tool = Client();
  ASSERT_OK(tool.Create(Specs(1)));
  EXPECT_THAT(tool.Create(Specs(0.5)),
              StatusIs(StatusCode::kAlreadyExists,
                       HasSubstr("create \"w\" on ps:0: optimizer.learning_rate: the job has 1, "
                                 "asked for 0.5: use that")));
  TestClient worker = Joined(0);
  EXPECT_THAT(worker.Create({DenseSpec("w", {2}, WireOptimizer("adam", 1))}),
              StatusIs(StatusCode::kAlreadyExists,
                       HasSubstr("optimizer.type: the job has sgd, asked for adam")));
  EXPECT_THAT(worker.Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1, {{"momentum", 0.9}}))}),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("optimizer.momentum")));
  EXPECT_THAT(
      worker.Create({DenseSpec("w", {3}, WireOptimizer("sgd", 0.5))}),
      StatusIs(StatusCode::kAlreadyExists, HasSubstr("shape: the job has [2], asked for [3]")));
}

TEST_F(ArgumentsTest, ARefusalNamesTheVariableOnce) {
  const absl::Status refused = Client().Create({DenseSpec("w", {2}, WireOptimizer("adm", 1))});
  EXPECT_THAT(refused, StatusIs(StatusCode::kInvalidArgument, HasSubstr("variable \"w\": ")));
  EXPECT_EQ(refused.message().find("variable \"w\""), refused.message().rfind("variable \"w\""));
}

}  // namespace
}  // namespace cairn
