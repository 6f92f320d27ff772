// Consistency and sessions through the calls of one server: hello, pull, step, heartbeat, why.
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/timeline.h"
#include "ps_server/calls/calls.h"
#include "ps_server/calls/service.h"
#include "ps_server/core/server_core.h"
#include "ps_server/core/statistics.h"
#include "ps_server/engine/engine.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

wire::Consistency Ssp(int64_t bound, wire::WorkerLoss::type loss = wire::WorkerLoss::CONTINUE) {
  wire::Consistency consistency;
  consistency.mode = wire::ConsistencyMode::SSP;
  consistency.staleness_bound_steps = bound;
  consistency.on_worker_loss = loss;
  return consistency;
}

class ConsistencyTest : public ServerTest {
 protected:
  void SetUp() override {
    options_.lease = absl::Minutes(5);
    options_.snapshot_interval = absl::Hours(1);
    ASSERT_NO_FATAL_FAILURE(Start());
    ASSERT_OK(Client().Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1))}));
  }

  // Calls hello with `consistency`; stores the reply in *reply.
  absl::Status Hello(TestClient& client, const wire::Consistency& consistency, int64_t step = 0,
                     wire::HelloReply* reply = nullptr) {
    wire::HelloRequest request;
    request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    request.job = client.caller().job;
    request.task_type = "worker";
    request.worker = client.caller().worker;
    request.incarnation = client.caller().incarnation;
    request.origin = absl::StrCat("host/", client.caller().worker);
    request.__set_consistency(consistency);
    request.step = step;
    wire::HelloReply own;
    if (reply == nullptr) reply = &own;
    const absl::Status status = CallStatus([&] { service().hello(*reply, request); });
    if (!status.ok()) return status;
    client.caller().incarnation = reply->incarnation;
    client.caller().boot_id = reply->state.boot_id;
    return absl::OkStatus();
  }
  TestClient JoinedWith(int32_t worker, const wire::Consistency& consistency) {
    TestClient client = Client(worker);
    EXPECT_OK(Hello(client, consistency));
    return client;
  }
  absl::Status Begin(TestClient& client, int64_t step, double wait_seconds = 1e-9) {
    wire::PullRequest request;
    request.caller = client.caller();
    request.step = step;
    request.wait_seconds = wait_seconds;
    wire::PullReply reply;
    return CallStatus([&] { service().pull(reply, request); });
  }
  wire::WhyReply Why() {
    wire::WhyReply reply;
    EXPECT_OK(CallStatus([&] { service().why(reply, Client().caller()); }));
    return reply;
  }
  absl::Status Heartbeat(TestClient& client) {
    wire::ServerState state;
    return CallStatus([&] { service().heartbeat(state, client.caller()); });
  }
  void AwaitWaiters(size_t count) {
    const Deadline deadline = Deadline::In(absl::Seconds(20));
    while (Why().waiting.size() != count && !deadline.Expired()) std::this_thread::yield();
    ASSERT_EQ(Why().waiting.size(), count);
  }
  // Waits until the server has noticed that the lease of `worker` expired.
  void AwaitLoss(int32_t worker) {
    const Deadline deadline = Deadline::In(absl::Seconds(20));
    const auto state = [&]() -> std::string {
      for (const wire::WorkerStanding& standing : Why().workers) {
        if (standing.worker == worker) return standing.state;
      }
      return "";
    };
    while (state() != "lost" && !deadline.Expired()) std::this_thread::yield();
    ASSERT_EQ(state(), "lost");
  }
  void StartWithLease(absl::Duration lease) {
    options_.lease = lease;
    ASSERT_NO_FATAL_FAILURE(Restart());
  }
};

TEST_F(ConsistencyTest, SettingsOutOfRangeAreRefusedByHello) {
  TestClient client = Client(0);
  EXPECT_THAT(Hello(client, Ssp(-1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("staleness_bound_steps is -1")));
  wire::Consistency unknown = Ssp(1);
  unknown.mode = static_cast<wire::ConsistencyMode::type>(9);
  EXPECT_THAT(Hello(client, unknown),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("consistency.mode is 9")));
}

TEST_F(ConsistencyTest, AWorkerThatAsksForAnotherConsistencyIsRefusedAndFencesNobody) {
  TestClient first = JoinedWith(0, Ssp(2));
  TestClient second = Client(1);
  EXPECT_EQ(ReasonOf(Hello(second, Ssp(3))), wire::ErrorReason::CONSISTENCY_CONFLICT);
  EXPECT_OK(Heartbeat(first));
  EXPECT_OK(Hello(second, Ssp(2)));
}

TEST_F(ConsistencyTest, APullOfAStepWaitsAndItsErrorNamesTheServerToo) {
  TestClient fast = JoinedWith(0, Ssp(1)), slow = JoinedWith(1, Ssp(1));
  EXPECT_OK(Begin(fast, 1));
  const absl::Status status = Begin(fast, 2);
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::WAIT_EXPIRED);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:0"), HasSubstr("worker 0 of job job"), HasSubstr("step 2"),
                    HasSubstr("worker 1 (host/1), which is at step 0")));
  EXPECT_OK(Begin(slow, 1));
  EXPECT_OK(Begin(fast, 2));
  EXPECT_EQ(Why().largest_step_gap, 1);
}

TEST_F(ConsistencyTest, APullThatBeginsNoStepDoesNotWait) {
  TestClient fast = JoinedWith(0, Ssp(0)), slow = JoinedWith(1, Ssp(0));
  EXPECT_OK(Begin(fast, 0));
  EXPECT_THAT(*fast.Pull("w"), ElementsAre(0, 0));
}

TEST_F(ConsistencyTest, AStepWhoseWaitExpiresHasItsPushAppliedAndAcknowledgesTheRepeat) {
  TestClient fast = JoinedWith(0, Ssp(0)), slow = JoinedWith(1, Ssp(0));
  wire::StepRequest request;
  request.push.caller = request.pull.caller = fast.caller();
  request.push.sequence.sequence = 1;
  request.push.items.push_back(WholeItem("w", {1, 1}));
  request.pull.step = 1;
  request.pull.wait_seconds = 0.001;
  request.pull.items.emplace_back();
  request.pull.items[0].variable = "w";
  wire::StepReply reply;
  const auto call = [&] { service().step(reply, request); };
  EXPECT_EQ(ReasonOf(CallStatus(call)), wire::ErrorReason::WAIT_EXPIRED);
  EXPECT_THAT(*slow.Pull("w"), ElementsAre(-1, -1));
  EXPECT_OK(Begin(slow, 1));
  request.push.items[0] = WholeItem("w", {1, 1});
  EXPECT_OK(CallStatus(call));
  EXPECT_TRUE(reply.push.repeated);
  EXPECT_THAT(Values<float>(reply.pull.items[0].values), ElementsAre(-1, -1));
}

TEST_F(ConsistencyTest, AWorkerNotHeardOfForALeaseIsLostAndComesBackByHello) {
  ASSERT_NO_FATAL_FAILURE(StartWithLease(absl::Seconds(4)));
  TestClient paused = JoinedWith(1, Ssp(0));
  EXPECT_OK(Begin(paused, 1));
  ASSERT_NO_FATAL_FAILURE(AwaitLoss(1));
  EXPECT_EQ(ReasonOf(Heartbeat(paused)), wire::ErrorReason::LEASE_ENDED);
  EXPECT_EQ(ReasonOf(paused.Push("w", {1, 1}).status()), wire::ErrorReason::LEASE_ENDED);
  wire::HelloReply reply;
  ASSERT_OK(Hello(paused, Ssp(0), 1, &reply));
  EXPECT_EQ(reply.step, 1);
  EXPECT_OK(Heartbeat(paused));
}

TEST_F(ConsistencyTest, UnderAsyncAWorkerWhoseLeaseEndedGoesOnWithoutHello) {
  ASSERT_NO_FATAL_FAILURE(StartWithLease(absl::Milliseconds(100)));
  TestClient paused = JoinedWith(1, wire::Consistency());
  ASSERT_NO_FATAL_FAILURE(AwaitLoss(1));
  EXPECT_OK(paused.Push("w", {1, 1}));
}

TEST_F(ConsistencyTest, UnderFailTheLossOfOneEndsTheCallsOfAll) {
  ASSERT_NO_FATAL_FAILURE(StartWithLease(absl::Seconds(4)));  // both join within it
  TestClient lost = JoinedWith(1, Ssp(5, wire::WorkerLoss::FAIL));
  TestClient other = JoinedWith(0, Ssp(5, wire::WorkerLoss::FAIL));
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  absl::Status status;
  while ((status = Heartbeat(other)).ok() && !deadline.Expired()) std::this_thread::yield();
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::WORKER_LOST);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 of job job (host/1) is lost"));
  EXPECT_EQ(ReasonOf(Begin(other, 1)), wire::ErrorReason::WORKER_LOST);
}

TEST_F(ConsistencyTest, ARestartedServerWaitsForWorkersItKnewButNotForThoseThatLeft) {
  TestClient a = JoinedWith(0, Ssp(0)), b = JoinedWith(1, Ssp(0)), gone = JoinedWith(2, Ssp(0));
  wire::ServerState state;
  EXPECT_OK(CallStatus([&] { service().leave(state, gone.caller()); }));
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  ASSERT_OK(Hello(a, Ssp(0), 8));
  const absl::Status status = Begin(a, 9);
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::WAIT_EXPIRED);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("worker 1, which has not said hello"), Not(HasSubstr("worker 2"))));
  ASSERT_OK(Hello(b, Ssp(0), 9));
  EXPECT_OK(Begin(a, 9));
}

// The disk stalls while the hello of the next start waits for its incarnation to be stored. When it
// says hello again, the incarnation is stored, but the steps of the earlier start are not its own.
TEST(Hello, AfterOneThatFailedIsStillTheFirstOfItsStart) {
  const TempDir folder;
  EngineOptions options;
  options.directory = folder.Join("store");
  options.disk_wait = absl::Milliseconds(30);
  auto store = StripeStore::Open({.directory = options.directory});
  ASSERT_OK(store);
  ServerCore core(options, *std::move(store));
  Service service(core);
  wire::HelloReply reply;
  const auto hello = [&](int64_t start, int64_t step) {
    wire::HelloRequest request;
    request.protocol_version = 1;
    request.job = "job";
    request.worker = 0;
    request.start = start;
    request.step = step;
    request.__set_consistency(Ssp(0));
    return CallStatus([&] { service.hello(reply, request); });
  };
  ASSERT_OK(hello(7, 9));
  ASSERT_OK(core.flusher.Exclusively([&] {
    EXPECT_THAT(hello(8, 4), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("check the disk")));
    return absl::OkStatus();
  }));
  ASSERT_OK(core.flusher.Flush(Flusher::Reach::kSynced));
  ASSERT_OK(hello(8, 4));
  EXPECT_EQ(StartsOf(reply.incarnation), 2);
  EXPECT_EQ(reply.step, 4);
}

TEST(Leave, OfAnEarlierStartDoesNotEndTheLeaseOfTheNext) {
  const TempDir folder;
  EngineOptions options;
  options.directory = folder.Join("store");
  auto store = StripeStore::Open({.directory = options.directory});
  ASSERT_OK(store);
  ServerCore core(options, *std::move(store));
  Service service(core);
  TestClient earlier(service, 0), next(service, 0);
  ASSERT_OK(earlier.Hello());
  const auto admitted = core.admission.Admit(earlier.caller());  // the server is late with it
  ASSERT_OK(admitted);
  ASSERT_OK(next.Hello());
  ASSERT_GT(next.caller().incarnation, earlier.caller().incarnation);
  EXPECT_OK(
      Leave(core.info, core.admission, core.flusher, *admitted, earlier.caller().incarnation));
  EXPECT_FALSE(admitted->session->left());
  EXPECT_TRUE(admitted->session->leased());
  const auto standings = admitted->job->cohort().Standings();
  ASSERT_EQ(standings.size(), 1U);
  EXPECT_NE(standings[0].state, "left");
  EXPECT_OK(Leave(core.info, core.admission, core.flusher, *admitted, next.caller().incarnation));
  EXPECT_TRUE(admitted->session->left());
  EXPECT_FALSE(admitted->session->leased());
}

TEST_F(ConsistencyTest, ALostWorkerIsNotWaitedForByTheNextStartOfTheServer) {
  ASSERT_NO_FATAL_FAILURE(StartWithLease(absl::Milliseconds(100)));
  TestClient lost = JoinedWith(1, Ssp(0));
  ASSERT_NO_FATAL_FAILURE(AwaitLoss(1));
  ASSERT_NO_FATAL_FAILURE(StartWithLease(absl::Minutes(5)));
  TestClient a = JoinedWith(0, Ssp(0));
  EXPECT_OK(Begin(a, 1));
}

TEST_F(ConsistencyTest, ClosingTheServerEndsAWaitAtOnce) {
  TestClient fast = JoinedWith(0, Ssp(0)), slow = JoinedWith(1, Ssp(0));
  absl::Status status;
  std::thread waiter([&] { status = Begin(fast, 1, 60); });
  ASSERT_NO_FATAL_FAILURE(AwaitWaiters(1));
  EXPECT_OK(engine().Close());
  waiter.join();
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::STOPPING);
}

// As when the server gets SIGTERM: the listener waits for running calls before the server closes.
TEST_F(ConsistencyTest, CancellingLongCallsEndsAWaitAtOnce) {
  TestClient fast = JoinedWith(0, Ssp(0)), slow = JoinedWith(1, Ssp(0));
  absl::Status status;
  std::thread waiter([&] { status = Begin(fast, 1, 60); });
  ASSERT_NO_FATAL_FAILURE(AwaitWaiters(1));
  const absl::Duration begin = MonotonicNow();
  engine().CancelLongCalls();
  waiter.join();
  EXPECT_LT(MonotonicNow() - begin, absl::Seconds(30));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::STOPPING);
}

// The listener still serves calls for a moment after it has cancelled the long ones.
TEST_F(ConsistencyTest, AJobMadeAfterTheWaitsWereEndedWaitsForNobody) {
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().drop_job(state, Client().caller()); }));
  engine().CancelLongCalls();
  TestClient fast = JoinedWith(0, Ssp(0)), slow = JoinedWith(1, Ssp(0));
  const absl::Duration begin = MonotonicNow();
  EXPECT_EQ(ReasonOf(Begin(fast, 1, 40)), wire::ErrorReason::STOPPING);
  EXPECT_LT(MonotonicNow() - begin, absl::Seconds(30));
}

TEST_F(ConsistencyTest, DroppingTheJobEndsItsWaits) {
  TestClient fast = JoinedWith(0, Ssp(0)), slow = JoinedWith(1, Ssp(0));
  absl::Status status;
  std::thread waiter([&] { status = Begin(fast, 1, 60); });
  ASSERT_NO_FATAL_FAILURE(AwaitWaiters(1));
  wire::ServerState state;
  EXPECT_OK(CallStatus([&] { service().drop_job(state, Client().caller()); }));
  waiter.join();
  EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was dropped")));
}

TEST_F(ConsistencyTest, WhyIsOfOneJob) {
  TestClient fast = JoinedWith(0, Ssp(0)), slow = JoinedWith(1, Ssp(0));
  std::thread waiter([&] { EXPECT_OK(Begin(fast, 1, 60)); });
  ASSERT_NO_FATAL_FAILURE(AwaitWaiters(1));
  wire::Caller other;
  other.job = "another";
  wire::WhyReply reply;
  EXPECT_OK(CallStatus([&] { service().why(reply, other); }));
  EXPECT_TRUE(reply.waiting.empty());
  EXPECT_TRUE(reply.workers.empty());
  EXPECT_OK(Begin(slow, 1));
  waiter.join();
}

TEST_F(ConsistencyTest, StatisticsCountEveryWaitOnceAndListWorkersAtEveryDetail) {
  std::vector<TestClient> clients;
  for (int32_t worker = 0; worker < 3; ++worker) clients.push_back(JoinedWith(worker, Ssp(0)));
  std::vector<std::thread> waits;
  for (size_t worker = 1; worker < 3; ++worker) {
    waits.emplace_back([&, worker] { EXPECT_OK(Begin(clients[worker], 1, 30)); });
  }
  AwaitWaiters(2);
  const EngineStatistics metrics = engine().ReadStatistics(StatisticsDetail::kMetrics);
  EXPECT_EQ(metrics.waiting_calls.at("step"), 2);
  EXPECT_TRUE(metrics.jobs.at(0).waiting.empty());
  const EngineStatistics page = engine().ReadStatistics(StatisticsDetail::kPage);
  EXPECT_EQ(page.jobs.at(0).waiting_count, 2);
  ASSERT_EQ(page.jobs[0].waiting.size(), 2U);
  EXPECT_THAT(page.jobs[0].waiting[0].text, HasSubstr("worker 0 (host/0)"));
  EXPECT_TRUE(page.rpcs.empty());
  const EngineStatistics sample = engine().ReadStatistics(StatisticsDetail::kSample);
  for (const EngineStatistics* statistics : {&metrics, &page, &sample}) {
    ASSERT_EQ(statistics->jobs.at(0).workers.size(), 3U);
    EXPECT_EQ(statistics->jobs[0].workers[2].origin, "host/2");
  }
  EXPECT_OK(Begin(clients[0], 1));
  for (std::thread& wait : waits) wait.join();
  EXPECT_EQ(engine().ReadStatistics(StatisticsDetail::kMetrics).waiting_calls.at("step"), 0);
}

}  // namespace
}  // namespace cairn
