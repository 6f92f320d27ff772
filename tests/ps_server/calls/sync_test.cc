// A synchronous job through the calls of its servers: the mean of a step, the workers that it waits
// for, and servers and workers that are lost in the middle of a step.
#include <thread>

#include "ps_server/engine/engine.h"
#include "tests/ps_server/sync_cluster.h"
#include "thrift/cairn_constants.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::_;
using ::testing::AllOf;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// SGD with rate 1 on a variable of zeros: the value is minus the sum of all means.
class SyncTest : public ::testing::Test {
 protected:
  void Make(int32_t servers, int32_t workers, const wire::Consistency& consistency = Sync(),
            absl::Duration lease = absl::Minutes(5)) {
    cluster_ = std::make_unique<SyncCluster>(servers, lease);
    cluster_->consistency = consistency;
    cluster_->expected_workers = workers;
    for (int32_t s = 0; s < servers; ++s) {
      wire::VariableSpec dense = DenseSpec(Name(s), {2}, WireOptimizer("sgd", 1));
      wire::VariableSpec rows = DenseSpec(absl::StrCat("rows", s), {4, 1}, WireOptimizer("sgd", 1));
      for (wire::VariableSpec* spec : {&dense, &rows}) {
        wire::DenseShard shard;
        shard.first_row = 0;
        shard.rows = spec->shape[0];
        shard.ps = s;
        spec->shards = {shard};
      }
      ASSERT_OK(cluster_->Tool(s).Create({dense, rows}));
    }
    for (int32_t w = 0; w < workers; ++w) {
      workers_.push_back(std::make_unique<SyncWorker>(*cluster_, w));
      workers_.back()->Start();
    }
  }
  static std::string Name(int32_t server) { return absl::StrCat("w", server); }
  SyncWorker& worker(int32_t w) { return *workers_[static_cast<size_t>(w)]; }
  // Pushes `gradient` in both elements of every server's variable.
  absl::StatusOr<wire::PushReply> Push(int32_t w, int64_t step, float gradient, int64_t rows = 1) {
    std::vector<std::vector<wire::PushItem>> items;
    for (int32_t s = 0; s < cluster_->size(); ++s) {
      items.push_back({WholeItem(Name(s), {gradient, gradient})});
    }
    return worker(w).Push(step, rows, items);
  }
  float Value(int32_t server) { return (*cluster_->Tool(server).Pull(Name(server)))[0]; }
  wire::WhyReply Why(int32_t server) {
    wire::WhyReply reply;
    EXPECT_OK(
        CallStatus([&] { cluster_->service(server).why(reply, cluster_->Tool(server).caller()); }));
    return reply;
  }
  // Creates variable w0 on ps:1 too, which moves there by MoveStep.
  void BeginMove() {
    wire::VariableSpec spec = DenseSpec("w0", {2}, WireOptimizer("sgd", 1));
    spec.shards.emplace_back();
    spec.shards[0].rows = 2;
    ASSERT_OK(cluster_->Tool(1).Create({spec}));
    MoveStep(1, wire::MoveAction::PREPARE, 0);
    MoveStep(0, wire::MoveAction::PREPARE, 0);
  }
  // `decided`: MoveRequest.step.
  wire::MoveReply MoveStep(int32_t server, wire::MoveAction::type action, int64_t decided,
                           Payload data = Payload()) {
    wire::MoveRequest request;
    request.caller.job = "job";
    request.action = action;
    request.variable = "w0";
    request.map_version = 2;
    request.shards.emplace_back();
    request.shards[0].rows = 2;
    request.shards[0].ps = request.target = 1;
    request.step = decided;
    request.data = std::move(data);
    wire::MoveReply reply;
    EXPECT_OK(CallStatus([&] { cluster_->service(server).move(reply, request); }));
    return reply;
  }
  int64_t Counter(const std::string& name) {
    return (*cluster_->Tool(0).Describe()).counters.at(name);
  }

  std::unique_ptr<SyncCluster> cluster_;
  std::vector<std::unique_ptr<SyncWorker>> workers_;
};

TEST_F(SyncTest, AStepIsAppliedOnceWhenEveryWorkerHasContributed) {
  Make(2, 2);
  EXPECT_EQ(worker(0).hello(0).step, 1);
  ASSERT_OK(Push(0, 1, 1, 3));
  EXPECT_EQ(Value(0), 0);
  EXPECT_THAT(worker(0).Begin(2), StatusIs(StatusCode::kDeadlineExceeded, _));
  ASSERT_OK(Push(1, 1, 5, 1));
  EXPECT_EQ(Value(0), 0);
  EXPECT_THAT(worker(1).Begin(2), Opens(2));
  EXPECT_EQ(Value(0), -2);  // (3 * 1 + 1 * 5) / 4
  EXPECT_EQ(Value(1), -2);
  EXPECT_THAT(worker(0).Begin(2), Opens(2));
  EXPECT_EQ(Value(1), -2);
  EXPECT_EQ(worker(0).decisions().at(1).contributions.size(), 2u);
  EXPECT_EQ(Counter("steps"), 1);
}

// The mean of step 1 needs more memory than is left, which the small contributions to step 2 do
// not.
TEST_F(SyncTest, AContributionCountsOnceAlthoughAnEarlierStepCannotClose) {
  Make(1, 2);
  constexpr int64_t kElements = 1 << 20;
  ASSERT_OK(cluster_->Tool(0).Create({DenseSpec("big", {kElements}, WireOptimizer("sgd", 1))}));
  for (int32_t w : {0, 1}) {
    ASSERT_OK(worker(w).Push(1, 1, "big", std::vector<float>(kElements, 1)));
  }
  EXPECT_THAT(worker(0).Begin(2), StatusIs(StatusCode::kDeadlineExceeded, _));
  const absl::StatusOr<wire::DescribeReply> described = cluster_->Tool(0).Describe();
  const int64_t room = described->memory_budget_bytes - described->memory_used_bytes - (1 << 20);
  ASSERT_OK(cluster_->engine(0).AcquireMessage(room));
  EXPECT_THAT(worker(1).Begin(2), StatusIs(StatusCode::kResourceExhausted, _));
  ASSERT_OK(Push(0, 2, 3));
  cluster_->engine(0).ReleaseMessage(room);
  ASSERT_OK(Push(1, 2, 5));
  for (int32_t w : {0, 1}) EXPECT_THAT(worker(w).Begin(2), Opens(2));
  EXPECT_THAT(worker(0).Begin(3), StatusIs(StatusCode::kDeadlineExceeded, _));
  EXPECT_THAT(worker(1).Begin(3), Opens(3));
  EXPECT_EQ(Value(0), -4);
}

// A restarted server must receive the contribution again, so it may not appear applied or durable.
TEST_F(SyncTest, AContributionIsAppliedAndDurableOnlyWithItsStep) {
  Make(1, 1);
  const absl::StatusOr<wire::PushReply> pushed = Push(0, 1, 1);
  ASSERT_OK(pushed);
  EXPECT_FALSE(pushed->repeated);
  EXPECT_FALSE(pushed->dropped);
  EXPECT_EQ(pushed->state.applied, 0);
  ASSERT_OK(cluster_->Tool(0).Flush());
  ASSERT_OK(worker(0).Begin(1));
  EXPECT_EQ(worker(0).state().durable, 0);
  EXPECT_EQ(worker(0).state().closed_step, 0);
  ASSERT_OK(worker(0).Begin(2));
  EXPECT_EQ(worker(0).state().applied, 1);
  EXPECT_EQ(worker(0).state().closed_step, 1);
  EXPECT_EQ(worker(0).state().durable_step, 0);
  ASSERT_OK(cluster_->Tool(0).Flush());
  ASSERT_OK(worker(0).Begin(2));
  EXPECT_EQ(worker(0).state().durable, 1);
  EXPECT_EQ(worker(0).state().durable_step, 1);
}

// A worker can send any number of them, for a step that does not close.
TEST_F(SyncTest, EmptyContributionsTakeMemoryOfTheBudgetUntilTheirStepCloses) {
  Make(1, 2);
  const auto used = [&] { return cluster_->Tool(0).Describe()->memory_used_bytes; };
  const int64_t before = used();
  for (int i = 0; i < 100; ++i) ASSERT_OK(worker(0).Push(1, 1, {{}}));
  EXPECT_GE(used(), before + 100 * kMaxPositionBytes);
  ASSERT_OK(worker(1).Push(1, 1, {{}}));
  worker(0).Begin(2).IgnoreError();
  ASSERT_OK(worker(1).Begin(2));
  EXPECT_EQ(used(), before);
}

TEST_F(SyncTest, SparseRowsAreWeightedByAllRowsOfTheStep) {
  Make(1, 2);
  const auto rows = [](std::vector<int64_t> ids, std::vector<float> gradient) {
    return std::vector<std::vector<wire::PushItem>>{
        {IdItem("rows0", wire::Selection::ROWS, ids, gradient)}};
  };
  ASSERT_OK(worker(0).Push(1, 3, rows({0, 2, 0}, {1, 2, 1})));
  ASSERT_OK(worker(1).Push(1, 1, rows({2, 3}, {4, 8})));
  worker(0).Begin(2).IgnoreError();
  ASSERT_OK(worker(1).Begin(2));
  EXPECT_THAT(*cluster_->Tool(0).Pull("rows0"),
              Pointwise(FloatEq(), std::vector<float>{-1.5f, 0, -2.5f, -2}));
}

TEST_F(SyncTest, OneWorkerMayPushAWholeVariableAndAnotherRowsOfIt) {
  Make(1, 2);
  ASSERT_OK(worker(0).Push(1, 1, "rows0", {1, 2, 3, 4}));
  ASSERT_OK(worker(1).Push(1, 1, {{IdItem("rows0", wire::Selection::ROWS, {2}, {5})}}));
  worker(0).Begin(2).IgnoreError();
  ASSERT_OK(worker(1).Begin(2));
  EXPECT_THAT(*cluster_->Tool(0).Pull("rows0"),
              Pointwise(FloatEq(), std::vector<float>{-0.5f, -1, -4, -2}));
}

TEST_F(SyncTest, ContributorsDivideARowByThoseThatHaveIt) {
  Make(1, 2, Sync(0, wire::SyncMean::CONTRIBUTORS));
  const auto rows = [](std::vector<int64_t> ids, std::vector<float> gradient) {
    return std::vector<std::vector<wire::PushItem>>{
        {IdItem("rows0", wire::Selection::ROWS, ids, gradient), WholeItem("w0", {2, 2})}};
  };
  ASSERT_OK(worker(0).Push(1, 3, rows({0, 2, 0}, {1, 2, 1})));
  ASSERT_OK(worker(1).Push(1, 1, rows({2, 3}, {4, 8})));
  worker(0).Begin(2).IgnoreError();
  ASSERT_OK(worker(1).Begin(2));
  EXPECT_THAT(*cluster_->Tool(0).Pull("rows0"),
              Pointwise(FloatEq(), std::vector<float>{-2, 0, -3, -8}));
  EXPECT_EQ(Value(0), -2);
}

TEST_F(SyncTest, AWaitThatExpiresNamesWhoIsMissingAndWhyDoesMeanwhile) {
  Make(1, 1);
  cluster_->expected_workers = 3;
  SyncWorker second(*cluster_, 1);
  second.Start();
  ASSERT_OK(Push(0, 1, 1));
  std::thread waits([&] {
    EXPECT_THAT(worker(0).Begin(2, 0.5),
                StatusIs(StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("worker 0 of job job has waited"),
                               HasSubstr("to begin step 2: step 1 is open"),
                               HasSubstr("worker 1 (host/1), which is at step 0"),
                               HasSubstr("worker 2, which has not said hello yet"))));
  });
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  wire::WhyReply why;
  while (why.waiting.empty() && !deadline.Expired()) why = Why(0);
  waits.join();
  ASSERT_EQ(why.waiting.size(), 1u);
  EXPECT_EQ(why.waiting[0].waits_for, "step");
  ASSERT_EQ(why.waiting[0].missing.size(), 2u);
  EXPECT_EQ(why.waiting[0].missing[0].origin, "host/1");
  EXPECT_EQ(why.waiting[0].missing[1].state, "expected");
  EXPECT_TRUE(Why(0).waiting.empty());
}

TEST_F(SyncTest, AWorkerThatFinishesOrLeavesIsNotWaitedFor) {
  Make(1, 3);
  ASSERT_OK(Push(0, 1, 4));
  EXPECT_THAT(worker(0).Begin(2), StatusIs(StatusCode::kDeadlineExceeded, _));
  ASSERT_OK(worker(1).BeginAt(0, -1));
  EXPECT_THAT(worker(0).Begin(2), StatusIs(StatusCode::kDeadlineExceeded, _));
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { cluster_->service(0).leave(state, worker(2).CallerFor(0)); }));
  EXPECT_THAT(worker(0).Begin(2), Opens(2));
  EXPECT_EQ(Value(0), -4);
}

TEST_F(SyncTest, AStepGoesOnWithoutAWorkerWhoseLeaseHasEnded) {
  Make(1, 2, Sync(), absl::Seconds(4));  // every call below follows its hello within it
  ASSERT_OK(Push(0, 1, 4));
  ASSERT_OK(Push(1, 1, 100));  // not announced: another server might lack the contribution
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  absl::StatusOr<int64_t> open = absl::UnknownError("");
  while (!open.ok() && !deadline.Expired()) open = worker(0).Begin(2, 0.05);
  EXPECT_THAT(open, Opens(2));
  EXPECT_EQ(Value(0), -4);
  EXPECT_EQ(Counter("contributions_dropped"), 1);
}

TEST_F(SyncTest, WithABackupWorkerTheLateContributionIsDroppedAndItsWorkerGoesOnWithTheOpenStep) {
  Make(2, 3, Sync(2));
  ASSERT_OK(Push(0, 1, 1));
  EXPECT_THAT(worker(0).Begin(2), StatusIs(StatusCode::kDeadlineExceeded, _));
  ASSERT_OK(Push(2, 1, 3));
  EXPECT_THAT(worker(2).Begin(2), Opens(2));
  EXPECT_THAT(worker(0).Begin(2), Opens(2));
  ASSERT_OK(Push(0, 2, 1));
  ASSERT_OK(Push(2, 2, 1));
  worker(0).Begin(3).IgnoreError();
  ASSERT_OK(worker(2).Begin(3));
  const absl::StatusOr<wire::PushReply> late = Push(1, 1, 1000);
  ASSERT_OK(late);
  EXPECT_TRUE(late->dropped);
  EXPECT_EQ(late->state.applied, 1);
  EXPECT_THAT(worker(1).Begin(2), Opens(3));
  ASSERT_OK(Push(1, 3, 1));
  EXPECT_EQ(Value(0), -3);
  EXPECT_EQ(Value(1), -3);
}

// After a crash of the machine all callers that know the decision may be gone, and another decision
// could replace it.
TEST_F(SyncTest, ADecisionThatMayLeaveWorkersOutIsOnTheDiskFirst) {
  for (const int32_t aggregate : {0, 1}) {
    workers_.clear();
    ASSERT_NO_FATAL_FAILURE(Make(1, 2, Sync(aggregate)));
    const int64_t before = cluster_->Syncs(0);
    ASSERT_GE(before, 0);
    ASSERT_OK(Push(0, 1, 1));
    ASSERT_OK(Push(1, 1, 1));
    worker(0).Begin(2).IgnoreError();
    ASSERT_OK(worker(1).Begin(2));
    EXPECT_EQ(cluster_->Syncs(0) - before, aggregate);
  }
}

// Otherwise a newer push could not be distinguished from one that was closed with the previous
// step.
TEST_F(SyncTest, APushThatIsAppliedAtOnceWaitsForTheStepsBefore) {
  Make(1, 2);
  ASSERT_OK(Push(0, 1, 1));
  ASSERT_OK(Push(1, 1, 1));
  SyncWorker also = worker(1);  // the same start, in another thread
  std::thread closes([&] {
    worker(0).Begin(2).IgnoreError();
    EXPECT_OK(worker(1).Begin(2));
  });
  also.Number(0, 0);
  EXPECT_OK(also.PushTo(0, {WholeItem("w0", {10, 10})}));
  closes.join();
  EXPECT_EQ(Value(0), -11);
}

TEST_F(SyncTest, APushThatWaitsTooLongForItsStepsIsRefusedAndNamesWhoIsMissing) {
  Make(1, 2);
  ASSERT_OK(Push(1, 1, 1));
  worker(1).Number(0, 0);
  std::thread waits([&] {
    EXPECT_THAT(
        worker(1).PushTo(0, {WholeItem("w0", {10, 10})}),
        StatusIs(StatusCode::kDeadlineExceeded,
                 AllOf(HasSubstr("worker 1 of job job has waited"),
                       HasSubstr("for its steps to close"), HasSubstr("worker 0 (host/0)"))));
  });
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  wire::WhyReply why;
  while (why.waiting.empty() && !deadline.Expired()) why = Why(0);
  waits.join();
  ASSERT_EQ(why.waiting.size(), 1u);
  EXPECT_THAT(why.waiting[0].text, HasSubstr("waits for the steps of its contributions to close"));
}

TEST_F(SyncTest, AJobThatIsNotSynchronousTakesNoContributions) {
  Make(1, 1, wire::Consistency());
  EXPECT_THAT(Push(0, 1, 1), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not sync")));
}

TEST_F(SyncTest, ARefusedContributionIsVoidAndTheOrderGoesOn) {
  Make(1, 1);
  EXPECT_THAT(Push(0, 1, std::numeric_limits<float>::infinity()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("NaN or infinity")));
  ASSERT_OK(Push(0, 1, 1));
  ASSERT_OK(worker(0).Begin(2));
  EXPECT_EQ(Value(0), -1);
  EXPECT_EQ(worker(0).state().applied, 2);
}

// With --not_finite=skip the worker does not even notice.
TEST_F(SyncTest, AContributionThatOnlyOneServerRejectedDoesNotStopTheJob) {
  Make(2, 2);
  worker(0).Number(1, 3);
  ASSERT_OK(worker(0).PushTo(0, {WholeItem(Name(0), {1, 1})}));
  EXPECT_THAT(
      worker(0).PushTo(1, {WholeItem(Name(1), {1, std::numeric_limits<float>::quiet_NaN()})}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("NaN or infinity")));
  ASSERT_OK(Push(1, 1, 5));
  EXPECT_THAT(worker(0).Begin(2), StatusIs(StatusCode::kDeadlineExceeded, _));
  EXPECT_THAT(worker(1).Begin(2), Opens(2));
  EXPECT_THAT(worker(0).Begin(2), Opens(2));
  EXPECT_EQ(Value(0), -2);      // (3 * 1 + 1 * 5) / 4
  EXPECT_EQ(Value(1), -1.25f);  // 1 * 5 / 4
}

// Also for a worker that the server already knows from the server whose rows it took over.
TEST_F(SyncTest, AServerThatJoinsBeginsWhereItWasToldFirst) {
  ASSERT_NO_FATAL_FAILURE(Make(2, 1));
  for (const int64_t after : {5, 0}) {
    wire::HelloRequest request;
    request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    request.job = absl::StrCat("after", after);
    request.task_type = "worker";
    request.worker = 0;
    request.incarnation = 1;
    wire::HelloReply reply;
    ASSERT_OK(CallStatus([&] { cluster_->service(1).hello(reply, request); }));
    request.__set_consistency(Sync());
    request.expected_workers = 1;
    for (const int64_t told : {after, int64_t{9}}) {
      request.begins_after_step = told;
      ASSERT_OK(CallStatus([&] { cluster_->service(1).hello(reply, request); }));
      EXPECT_EQ(reply.state.closed_step, after) << told;
      EXPECT_EQ(reply.state.durable_step, after) << told;
      cluster_->Crash(1);
    }
  }
}

// Durable up to step 1; step 2 is closed on both, step 3 waits for worker 1.
class SyncCrashTest : public SyncTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Make(2, 2));
    for (int64_t step = 1; step <= 2; ++step) {
      ASSERT_OK(Push(0, step, 1));
      ASSERT_OK(Push(1, step, 3));
      worker(0).Begin(step + 1).IgnoreError();
      ASSERT_OK(worker(1).Begin(step + 1));
      ASSERT_OK(worker(0).Begin(step + 1));
      if (step > 1) continue;
      for (int32_t s : {0, 1}) ASSERT_OK(cluster_->Tool(s).Flush());
    }
    ASSERT_OK(Push(0, 3, 1));
    EXPECT_THAT(worker(0).Begin(4), StatusIs(StatusCode::kDeadlineExceeded, _));
  }
  void EndStepThree() {
    ASSERT_OK(Push(1, 3, 3));
    EXPECT_THAT(worker(0).Begin(4), StatusIs(StatusCode::kDeadlineExceeded, _));
    EXPECT_THAT(worker(1).Begin(4), Opens(4));
    EXPECT_THAT(worker(0).Begin(4), Opens(4));
    EXPECT_EQ(Value(0), -6);
    EXPECT_EQ(Value(1), -6);
  }
};

TEST_F(SyncCrashTest, AServerThatLostStepsClosesThemAgainFromWhatItsWorkersSendAgain) {
  cluster_->Crash(1);
  EXPECT_EQ(Value(1), -2);
  ASSERT_OK(worker(0).Replay(1));
  EXPECT_EQ(worker(0).hello(1).state.applied, 1);
  EXPECT_EQ(worker(0).hello(1).step, 2);
  EXPECT_EQ(Value(1), -2);  // worker 1's contribution is missing
  ASSERT_OK(worker(1).Replay(1));
  EXPECT_EQ(Value(1), -4);
  EndStepThree();
}

TEST_F(SyncCrashTest, TheCoordinatorKeepsItsDecisionsAndIsSentTheRestAgain) {
  cluster_->Crash(0);
  EXPECT_EQ(Value(0), -2);
  ASSERT_OK(worker(1).Replay(0));
  EXPECT_EQ(worker(1).hello(0).step, 3);
  EXPECT_EQ(worker(1).hello(0).state.closed_step, 1);
  EXPECT_THAT(worker(1).Begin(3),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("sent again what counts"), HasSubstr("worker 0"))));
  ASSERT_OK(worker(0).Replay(0));
  EXPECT_EQ(Value(0), -4);
  EndStepThree();
}

TEST_F(SyncCrashTest, AllServersAtOnce) {
  for (int32_t s : {0, 1}) cluster_->Crash(s);
  for (int32_t w : {0, 1}) {
    for (int32_t s : {0, 1}) ASSERT_OK(worker(w).Replay(s));
  }
  EndStepThree();
}

// The contributions to step 3 on this server will not be decided: worker 1's may have been sent to
// some servers and not to others.
TEST_F(SyncCrashTest, ANewStartOfAWorkerContributesToTheOpenStepAgain) {
  worker(0).Start();
  EXPECT_EQ(worker(0).hello(0).step, 3);
  EXPECT_EQ(worker(0).sequence(), 2);
  EXPECT_EQ(worker(0).hello(0).position, "at 2");
  EXPECT_THAT(worker(0).Begin(3), Opens(3));
  ASSERT_OK(Push(0, 3, 1));
  EndStepThree();
}

// A new start of the worker recomputes contributions that a server lost together with the worker,
// under the same numbers: on that server they count for the step that they name, elsewhere they are
// duplicates.
TEST_F(SyncCrashTest, AServerIsSentAgainWhatANewStartComputesAgain) {
  cluster_->Crash(1);
  worker(0).Start();
  EXPECT_EQ(worker(0).hello(0).state.applied, 2);
  EXPECT_EQ(worker(0).hello(1).state.applied, 1);
  EXPECT_EQ(worker(0).hello(1).position, "at 1");
  ASSERT_OK(worker(1).Replay(1));
  EXPECT_EQ(Value(1), -2);  // step 2 waits
  worker(0).ResumeAfter(1);
  ASSERT_OK(Push(0, 2, 1));
  EXPECT_EQ(Value(0), -4);
  EXPECT_EQ(Value(1), -4);
  EXPECT_THAT(worker(0).Begin(3), Opens(3));
  ASSERT_OK(Push(0, 3, 1));
  EndStepThree();
  EXPECT_EQ((*cluster_->Tool(1).Describe()).counters.at("contributions_lost"), 0);
}

// The same if ps:0 lost the contribution: the new start learns that its push is applied, although
// the record from which it resumes is older.
TEST_F(SyncCrashTest, TheCoordinatorIsSentAgainWhatANewStartComputesAgain) {
  cluster_->Crash(0);
  worker(0).Start();
  EXPECT_EQ(worker(0).hello(0).state.applied, 2);
  EXPECT_EQ(worker(0).hello(0).state.durable, 1);
  EXPECT_EQ(worker(0).hello(0).position, "at 1");
  ASSERT_OK(worker(1).Replay(0));
  EXPECT_EQ(Value(0), -2);
  worker(0).ResumeAfter(1);
  ASSERT_OK(Push(0, 2, 1));
  EXPECT_EQ(Value(0), -4);
  EXPECT_EQ(Value(1), -4);
  EXPECT_THAT(worker(0).Begin(3), Opens(3));
  ASSERT_OK(Push(0, 3, 1));
  EndStepThree();
}

// The server was lost, and the only worker that could send the contribution again leaves: the step
// counts it as missing, and nothing waits for it.
TEST_F(SyncCrashTest, AServerClosesWithoutWhatItLostAndNobodySendsAgain) {
  cluster_->Crash(1);
  worker(0).Start();
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { cluster_->service(1).leave(state, worker(0).CallerFor(1)); }));
  ASSERT_OK(worker(1).Replay(1));
  EXPECT_EQ(Value(1), -5);  // step 2 had two contributions, 1 and 3
  EXPECT_EQ((*cluster_->Tool(1).Describe()).counters.at("contributions_lost"), 1);
}

TEST_F(SyncCrashTest, DecisionsAreForgottenOnceEveryServerHasTheStepsDurably) {
  EXPECT_EQ(worker(0).decisions().size(), 2u);
  SyncWorker late(*cluster_, 2);
  late.Start();
  wire::PullRequest request;
  request.caller = late.CallerFor(0);
  request.step = 3;
  request.wait_seconds = SyncWorker::kNoWait;
  request.decisions_after = 0;
  request.all_durable_step = 1;
  wire::PullReply reply;
  ASSERT_OK(CallStatus([&] { cluster_->service(0).pull(reply, request); }));
  ASSERT_EQ(reply.decisions.size(), 1u);
  EXPECT_EQ(reply.decisions[0].step, 2);
  EXPECT_EQ(reply.step, 3);
}

// The moved rows bring the worker's fence, which does not mean that its push is still to come.
TEST_F(SyncTest, AServerDoesNotWaitForAWorkerThatItKnowsOnlyFromAMove) {
  Make(2, 1);
  SyncWorker gone(*cluster_, 1);
  ASSERT_OK(gone.Hello(0));
  gone.Number(1, 1);
  ASSERT_OK(gone.PushTo(0, {WholeItem("w0", {3, 3})}));
  EXPECT_FALSE(gone.BeginAt(0, 2).ok());
  ASSERT_OK(Push(0, 1, 1));
  ASSERT_THAT(worker(0).BeginAt(0, 2), Opens(2));
  ASSERT_NO_FATAL_FAILURE(BeginMove());
  EXPECT_TRUE(MoveStep(0, wire::MoveAction::HOLD, 1).draining);
  EXPECT_FALSE(MoveStep(0, wire::MoveAction::HOLD, 1).draining);
  MoveStep(1, wire::MoveAction::WRITE, 1, MoveStep(0, wire::MoveAction::READ, 1).data);
  MoveStep(1, wire::MoveAction::READY, 1);
  EXPECT_THAT(worker(0).BeginAt(1, 2), Opens(2));
  EXPECT_EQ(Value(1), -0.5f);  // its own worker's rows are half of the step's
}

// The source closes the step that has begun, and refuses contributions to a later one; the target
// applies the moved contributions together with its own.
TEST_F(SyncTest, RowsGoBetweenTwoSteps) {
  Make(2, 1);
  int64_t decided = 0;
  const auto step = [&](int32_t server, wire::MoveAction::type action, Payload data = Payload()) {
    return MoveStep(server, action, decided, std::move(data));
  };
  ASSERT_OK(Push(0, 1, 1));
  ASSERT_NO_FATAL_FAILURE(BeginMove());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(step(0, wire::MoveAction::HOLD).draining);
  worker(0).Number(2, 1);
  EXPECT_EQ(ReasonOf(worker(0).PushTo(0, {WholeItem("w0", {1, 1})}).status()),
            wire::ErrorReason::BUSY);
  ASSERT_OK(worker(0).PushTo(1, {WholeItem("w1", {1, 1})}));
  ASSERT_THAT(worker(0).Begin(2), Opens(2));
  decided = step(0, wire::MoveAction::DECIDED).step;
  EXPECT_EQ(decided, 1);
  EXPECT_FALSE(step(0, wire::MoveAction::HOLD).draining);
  step(1, wire::MoveAction::WRITE, step(0, wire::MoveAction::READ).data);
  step(1, wire::MoveAction::READY);
  step(0, wire::MoveAction::COMMIT);
  step(1, wire::MoveAction::COMMIT);
  wire::PushItem moved = WholeItem("w0", {1, 1});
  moved.map_version = 1;
  EXPECT_EQ(ReasonOf(worker(0).PushTo(0, {moved}).status()), wire::ErrorReason::MOVED);
  ASSERT_OK(worker(0).PushTo(1, {WholeItem("w1", {1, 1}), WholeItem("w0", {1, 1})}, true));
  ASSERT_OK(worker(0).PushTo(0, {}));
  ASSERT_THAT(worker(0).Begin(3), Opens(3));
  const auto moved_value = [&] { return (*cluster_->Tool(1).Pull("w0"))[0]; };
  EXPECT_EQ(moved_value(), -2);
  EXPECT_EQ(Value(1), -2);
  cluster_->Crash(1);
  EXPECT_EQ(moved_value(), -1);  // as received
  EXPECT_EQ(Value(1), 0);
  ASSERT_OK(worker(0).Replay(1));
  ASSERT_THAT(worker(0).Begin(3), Opens(3));
  EXPECT_EQ(moved_value(), -2);
  EXPECT_EQ(Value(1), -2);
}

}  // namespace
}  // namespace cairn
