// What a session remembers of a worker's identity and of the order of its pushes
// (worker/client/EXACTLY_ONCE.md).
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/timeline.h"
#include "ps_server/jobs/session.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/cairn_constants.h"
#include "thrift/errors.h"
#include "thrift/limits.h"
#include "thrift/number_limits.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SessionTest : public ServerTest {
 protected:
  void SetUp() override {
    options_.snapshot_interval = absl::Hours(1);  // snapshots only when a test asks for one
    ASSERT_NO_FATAL_FAILURE(Start());
    ASSERT_OK(Client().Create({DenseSpec("w", {2}, WireOptimizer("sgd", 1)),
                               TableSpec("t", 1, WireOptimizer("sgd", 1))}));
  }

  wire::PushRequest Numbered(TestClient& client, int64_t sequence, int64_t after,
                             const std::string& variable = "w") {
    wire::PushRequest request;
    request.caller = client.caller();
    request.sequence.sequence = sequence;
    request.sequence.after = after;
    request.sequence.position = absl::StrCat("position ", sequence);
    request.items.push_back(WholeItem(variable, {1, 1}));
    return request;
  }
};

TEST_F(SessionTest, HelloRejectsOtherProtocolVersions) {
  wire::HelloRequest request;
  request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION + 1;
  request.job = "job";
  wire::HelloReply reply;
  EXPECT_THAT(CallStatus([&] { service().hello(reply, request); }),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("speaks protocol version 1")));
}

TEST_F(SessionTest, HelloOfAToolTakesNoIncarnation) {
  TestClient tool = Client(-1);
  const auto hello = tool.Hello();
  ASSERT_OK(hello);
  EXPECT_EQ(hello->incarnation, 0);
  EXPECT_EQ(hello->server_count, 1);
  EXPECT_EQ(hello->durability, "snapshot");
  EXPECT_EQ(hello->max_message_bytes, options_.max_message_bytes);
  EXPECT_GT(hello->state.boot_id, 0);
}

TEST_F(SessionTest, EachStartOfAWorkerGetsAHigherIncarnationEvenAfterAServerRestart) {
  EXPECT_EQ(StartsOf(Joined(3).caller().incarnation), 1);
  EXPECT_EQ(StartsOf(Joined(3).caller().incarnation), 2);
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());  // a granted incarnation is durable
  EXPECT_EQ(StartsOf(Joined(3).caller().incarnation), 3);
  EXPECT_EQ(StartsOf(Joined(4).caller().incarnation), 1);
}

TEST_F(SessionTest, ARepeatedHelloFencesNoWorker) {
  wire::HelloRequest request;
  request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
  request.job = "job";
  request.worker = 3;
  request.start = 77;
  int64_t incarnation = 0;
  const auto granted = [&] {
    wire::HelloReply reply;
    EXPECT_OK(CallStatus([&] { service().hello(reply, request); }));
    EXPECT_GE(reply.incarnation, incarnation);
    incarnation = reply.incarnation;
    return StartsOf(incarnation);
  };
  EXPECT_EQ(granted(), 1);
  EXPECT_EQ(granted(), 1) << "its answer was lost, or it arrives late";
  TestClient worker = Client(3);
  ASSERT_OK(worker.Hello(incarnation));  // names the incarnation, but no start
  ASSERT_OK(worker.Push("w", {1, 1}));
  request.start = 78;
  EXPECT_EQ(granted(), 2) << "another start";
  EXPECT_EQ(ReasonOf(worker.Push("w", {1, 1}).status()), wire::ErrorReason::FENCED);
  EXPECT_EQ(granted(), 2);
  request.start = 0;
  EXPECT_EQ(granted(), 3) << "a client that does not tell its starts apart";
  EXPECT_EQ(granted(), 4);
}

// The hello of an earlier start is sent again because its reply was lost, or it arrives late: a new
// incarnation would fence the start that took its place.
TEST_F(SessionTest, AHelloOfAReplacedStartIsFenced) {
  int64_t granted = 0;
  const auto hello = [&](int64_t start) {
    wire::HelloRequest request;
    request.protocol_version = wire::g_cairn_constants.PROTOCOL_VERSION;
    request.job = "job";
    request.worker = 3;
    request.start = start;
    wire::HelloReply reply;
    const absl::Status status = CallStatus([&] { service().hello(reply, request); });
    granted = std::max(granted, reply.incarnation);
    return status;
  };
  for (int64_t start = 70; start < 75; ++start) ASSERT_OK(hello(start));
  for (int64_t start = 70; start < 74; ++start) {
    EXPECT_EQ(ReasonOf(hello(start)), wire::ErrorReason::FENCED) << start;
  }
  TestClient latest = Client(3);
  ASSERT_OK(latest.Hello(granted));
  EXPECT_OK(latest.Push("w", {1, 1})) << "the latest start goes on";
}

TEST_F(SessionTest, AFencedWorkerCannotDropTheJob) {
  TestClient old = Joined(0);
  TestClient young = Joined(0);
  ASSERT_OK(young.Push("w", {1, 1}));
  wire::ServerState state;
  const auto drop = [&](TestClient& client) {
    return CallStatus([&] { service().drop_job(state, client.caller()); });
  };
  EXPECT_EQ(ReasonOf(drop(old)), wire::ErrorReason::FENCED);
  EXPECT_THAT(*young.Pull("w"), ElementsAre(-1, -1));
  EXPECT_OK(drop(young));
  EXPECT_OK(drop(young)) << "repeated: the job is gone";
}

TEST_F(SessionTest, AnOlderIncarnationIsFencedOnEveryCall) {
  TestClient old = Joined(0);
  ASSERT_OK(old.Push("w", {1, 1}));
  TestClient young = Joined(0);
  const absl::Status pushed = old.Push("w", {1, 1}).status();
  EXPECT_THAT(pushed, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("this process must")));
  EXPECT_EQ(ReasonOf(pushed), wire::ErrorReason::FENCED);
  EXPECT_EQ(ReasonOf(old.Pull("w").status()), wire::ErrorReason::FENCED);
  EXPECT_EQ(ReasonOf(old.Hello(1).status()), wire::ErrorReason::FENCED);
  EXPECT_THAT(*young.Pull("w"), ElementsAre(-1, -1));
}

TEST_F(SessionTest, OtherServersAcceptAndStoreTheIncarnationsThatTheCoordinatorGranted) {
  options_.directory = folder_.Join("second");
  options_.server_index = 1;
  options_.server_count = 2;
  ASSERT_NO_FATAL_FAILURE(Start());
  TestClient client = Client(0);
  EXPECT_THAT(client.Hello(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ps:1 grants no incarnations")));
  ASSERT_OK(client.Hello(5));
  ASSERT_OK(client.Hello(5));  // the same again: a reconnect
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  TestClient old = Client(0);
  EXPECT_EQ(ReasonOf(old.Hello(4).status()), wire::ErrorReason::FENCED);
  EXPECT_OK(old.Hello(6));
}

TEST_F(SessionTest, AnotherBootIdOrAMissingHelloIsAnsweredRebooted) {
  TestClient client = Joined(0);
  client.caller().boot_id += 1;
  EXPECT_EQ(ReasonOf(client.Push("w", {1, 1}).status()), wire::ErrorReason::REBOOTED);
  EXPECT_EQ(ReasonOf(client.Pull("w").status()), wire::ErrorReason::REBOOTED);
  wire::ServerState state;
  EXPECT_EQ(ReasonOf(CallStatus([&] { service().heartbeat(state, client.caller()); })),
            wire::ErrorReason::REBOOTED);
  TestClient stranger = Client(7);
  stranger.caller().incarnation = 1;
  EXPECT_EQ(ReasonOf(stranger.Push("w", {1, 1}).status()), wire::ErrorReason::REBOOTED);
}

// `why` reports the vitals that a worker sends with a heartbeat.
TEST_F(SessionTest, AHeartbeatReportsTheWorkersVitals) {
  TestClient client = Joined(0);
  wire::WhyReply why;
  service().why(why, client.caller());
  ASSERT_EQ(why.workers.size(), 1U);
  EXPECT_FALSE(why.workers[0].__isset.vitals);
  wire::Caller beating = client.caller();
  wire::WorkerVitals vitals;
  vitals.__set_task("chief:0");
  vitals.__set_loss(0.25);
  vitals.__set_servers_gone({1});
  vitals.__set_servers_replaced({1});
  beating.__set_vitals(vitals);
  wire::ServerState state;
  service().heartbeat(state, beating);
  why = {};
  service().why(why, client.caller());
  ASSERT_EQ(why.workers.size(), 1U);
  EXPECT_EQ(why.workers[0].vitals, vitals);
  EXPECT_GE(why.workers[0].seconds_since_vitals, 0);
  // The new start has not reported vitals yet.
  ASSERT_OK(client.Hello());
  why = {};
  service().why(why, client.caller());
  EXPECT_FALSE(why.workers[0].__isset.vitals);
}

// Sent before the worker left, handled afterwards: the lease must not begin again.
TEST_F(SessionTest, AHeartbeatHandledAfterLeaveDoesNotUndoIt) {
  TestClient client = Joined(0);
  wire::ServerState state;
  service().leave(state, client.caller());
  wire::Caller beating = client.caller();
  beating.__set_vitals({});
  service().heartbeat(state, beating);
  wire::WhyReply why;
  service().why(why, client.caller());
  ASSERT_EQ(why.workers.size(), 1U);
  EXPECT_EQ(why.workers[0].state, "left");
  Session session("job", 0, /*applied_is_durable=*/false);
  session.Renew(absl::Seconds(10));
  session.SetLeft(true);
  session.Beat(absl::Seconds(10), {});
  EXPECT_TRUE(session.leased());  // the lease lasts until the worker's last snapshot
  session.EndLease();
  session.Beat(absl::Seconds(10), {});
  EXPECT_FALSE(session.leased());
}

TEST_F(SessionTest, BootIdDiffersAfterEveryStart) {
  const int64_t first = Joined(0).caller().boot_id;
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_NE(Joined(0).caller().boot_id, first);
}

TEST_F(SessionTest, APushAheadOfItsPredecessorIsAnsweredReplayAndChangesNothing) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Send(Numbered(client, 1, 0)));
  const absl::Status status = client.Send(Numbered(client, 3, 2)).status();
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::REPLAY);
  EXPECT_EQ(ReplayAfterOf(status), 1);
  EXPECT_THAT(*client.Pull("w"), ElementsAre(-1, -1));
  ASSERT_OK(client.Send(Numbered(client, 2, 1)));
  ASSERT_OK(client.Send(Numbered(client, 3, 2)));
  EXPECT_THAT(*client.Pull("w"), ElementsAre(-3, -3));
}

TEST_F(SessionTest, ARepeatedSequenceIsAcknowledgedAndNotApplied) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Send(Numbered(client, 1, 0)));
  const auto repeated = client.Send(Numbered(client, 1, 0));
  ASSERT_OK(repeated);
  EXPECT_TRUE(repeated->repeated);
  EXPECT_EQ(repeated->items[0].version, 1);
  EXPECT_EQ(repeated->state.applied, 1);
  EXPECT_THAT(*client.Pull("w"), ElementsAre(-1, -1));
  EXPECT_EQ(client.Describe()->counters["pushes_repeated"], 1);
}

TEST_F(SessionTest, EachWorkerHasItsOwnSequences) {
  TestClient first = Joined(0);
  TestClient second = Joined(1);
  EXPECT_FALSE(first.Send(Numbered(first, 1, 0))->repeated);
  EXPECT_FALSE(second.Send(Numbered(second, 1, 0))->repeated);
  EXPECT_THAT(*first.Pull("w"), ElementsAre(-2, -2));
}

TEST_F(SessionTest, ARejectedPushIsVoidAndTheOrderContinues) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Send(Numbered(client, 1, 0)));
  wire::PushRequest bad = Numbered(client, 2, 1);
  bad.items[0] = WholeItem("w", {1, std::nanf("")});
  try {
    wire::PushReply reply;
    service().push(reply, bad);
    FAIL() << "NaN was accepted";
  } catch (const wire::ServerError& error) {
    EXPECT_EQ(error.reason, wire::ErrorReason::NOT_FINITE);
    EXPECT_TRUE(error.__isset.state);
    EXPECT_EQ(error.state.applied, 2);
  }
  ASSERT_OK(client.Send(Numbered(client, 3, 2)));
  EXPECT_THAT(*client.Pull("w"), ElementsAre(-2, -2));
}

TEST_F(SessionTest, ThroughSkipsSequencesWithoutAPartHere) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Send(Numbered(client, 1, 0)));
  client.caller().through = 4;
  ASSERT_OK(client.Pull("w"));
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().heartbeat(state, client.caller()); }));
  EXPECT_EQ(state.applied, 4);
  // A new start resumes at a stored position, and sequence 4 has none here.
  ASSERT_OK(CallStatus([&] { service().flush(state, client.caller()); }));
  EXPECT_EQ(state.durable, 1);
  const auto hello = Client(0).Hello(client.caller().incarnation);
  EXPECT_EQ(hello->position, "position 1");
  ASSERT_OK(client.Send(Numbered(client, 5, 4)));
  EXPECT_THAT(*client.Pull("w"), ElementsAre(-2, -2));
}

// A client written from the IDL may leave boot_id at 0; its pushes are still applied exactly once.
TEST_F(SessionTest, ThroughWithoutABootIdDoesNotHideThatARestartLostPushes) {
  TestClient client = Joined(0);
  std::vector<wire::PushRequest> sent;
  for (int64_t i = 1; i <= 10; ++i) {
    sent.push_back(Numbered(client, i, i - 1));
    sent.back().caller.boot_id = 0;
    sent.back().caller.through = i - 1;
    ASSERT_OK(client.Send(sent.back()));
  }
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  TestClient again = Client(0);
  ASSERT_OK(again.Hello(client.caller().incarnation));
  again.caller().boot_id = 0;
  again.caller().through = 10;
  ASSERT_OK(again.Pull("w"));  // carries `through` as well
  wire::PushRequest eleventh = Numbered(again, 11, 10);
  const absl::Status early = again.Send(eleventh).status();
  EXPECT_EQ(ReasonOf(early), wire::ErrorReason::REPLAY) << early;
  EXPECT_EQ(ReplayAfterOf(early), 0);
  for (const wire::PushRequest& push : sent) ASSERT_OK(again.Send(push));
  ASSERT_OK(again.Send(eleventh));
  EXPECT_THAT(*again.Pull("w"), ElementsAre(-11, -11));
}

TEST_F(SessionTest, IncarnationsBeyondTheLimitAreRejected) {
  TestClient client = Client(0);
  EXPECT_THAT(client.Hello(kMaxIncarnation + 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("0 to 9223372032559808512")));
  EXPECT_THAT(client.Hello(std::numeric_limits<int64_t>::max()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("0 to 9223372032559808512")));
  ASSERT_OK(client.Hello(kMaxIncarnation - 1));
  EXPECT_EQ(Joined(0).caller().incarnation, kMaxIncarnation);
  EXPECT_THAT(Client(0).Hello(), StatusIs(StatusCode::kResourceExhausted,
                                          HasSubstr("worker 0 of job job has incarnation")));
  EXPECT_OK(Client(0).Hello(kMaxIncarnation));
  EXPECT_EQ(StartsOf(Joined(1).caller().incarnation), 1);
}

// Rows may have moved to this server since.
TEST_F(SessionTest, ANewStartMayHaveAPartWhereItsEarlierStartHadNone) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Send(Numbered(client, 1, 0)));
  client.caller().through = 4;
  ASSERT_OK(client.Pull("w"));
  TestClient again = Joined(0);
  ASSERT_OK(again.Send(Numbered(again, 4, 1)));
  EXPECT_THAT(*again.Pull("w"), ElementsAre(-2, -2));
}

TEST_F(SessionTest, MalformedSequencesAreRejected) {
  TestClient client = Joined(0);
  EXPECT_THAT(client.Send(Numbered(client, 0, 0)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("sequence 0 after 0")));
  EXPECT_FALSE(client.Send(Numbered(client, 2, 2)).ok());
  EXPECT_FALSE(client.Send(Numbered(client, 2, -1)).ok());
  wire::PushRequest request = Numbered(client, 1, 0);
  request.sequence.position.assign(kMaxPositionBytes + 1, 'p');
  EXPECT_EQ(ReasonOf(client.Send(request).status()), wire::ErrorReason::LIMIT);
  request.sequence.position.resize(kMaxPositionBytes);
  EXPECT_OK(client.Send(request));
}

TEST_F(SessionTest, ANewStartsHelloMakesTheOldStartsPushesDurableAndReturnsTheirPosition) {
  TestClient old = Joined(0);
  ASSERT_OK(old.Send(Numbered(old, 1, 0)));
  const auto second = old.Send(Numbered(old, 2, 1));
  ASSERT_OK(second);
  EXPECT_EQ(second->state.durable, 0);  // no snapshot yet
  TestClient young = Client(0);
  const auto hello = young.Hello();
  ASSERT_OK(hello);
  EXPECT_EQ(hello->state.applied, 2);
  EXPECT_EQ(hello->state.durable, 2);
  EXPECT_EQ(hello->position, "position 2");
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  EXPECT_THAT(*Client().Pull("w"), ElementsAre(-2, -2));
}

TEST_F(SessionTest, LeaveMakesEverythingDurable) {
  TestClient client = Joined(0);
  ASSERT_OK(client.Send(Numbered(client, 1, 0)));
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().leave(state, client.caller()); }));
  EXPECT_EQ(state.durable, 1);
}

TEST_F(SessionTest, AnExpiredLeaseTriggersAnEarlySnapshot) {
  options_.lease = absl::Milliseconds(50);
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient client = Joined(0);
  ASSERT_OK(client.Send(Numbered(client, 1, 0)));
  // Meanwhile the test calls only a tool's describe, which does not renew the lease.
  TestClient tool = Client();
  const int64_t epochs = tool.Describe()->counters["epochs"];
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  while (tool.Describe()->counters["epochs"] == epochs) ASSERT_FALSE(deadline.Expired());
  ASSERT_NO_FATAL_FAILURE(StartFromCopy());
  EXPECT_THAT(*Client().Pull("w"), ElementsAre(-1, -1));
}

TEST_F(SessionTest, StalenessCountsOnlyUpdatesByOthers) {
  TestClient first = Joined(0);
  TestClient second = Joined(1);
  wire::PushRequest request = Numbered(first, 1, 0);
  request.items[0].pulled_version = 0;
  EXPECT_EQ(first.Send(request)->items[0].staleness, 0);
  ASSERT_OK(second.Send(Numbered(second, 1, 0)));
  ASSERT_OK(second.Send(Numbered(second, 2, 1)));
  request = Numbered(first, 2, 1);
  request.items[0].pulled_version = 0;  // its own first update lies between and does not count
  EXPECT_EQ(first.Send(request)->items[0].staleness, 2);
  request = Numbered(first, 3, 2);
  request.items[0].pulled_version = -1;
  EXPECT_EQ(first.Send(request)->items[0].staleness, -1);
}

TEST_F(SessionTest, StepPushesAndThenPullsTheResult) {
  TestClient client = Joined(0);
  wire::StepRequest request;
  request.push = Numbered(client, 1, 0);
  request.pull.caller = client.caller();
  request.pull.items.resize(1);
  request.pull.items[0].variable = "w";
  wire::StepReply reply;
  ASSERT_OK(CallStatus([&] { service().step(reply, request); }));
  EXPECT_THAT(Values<float>(reply.pull.items[0].values), ElementsAre(-1, -1));
  EXPECT_EQ(reply.pull.state.applied, 1);
  request.push.items[0].variable = "absent";
  request.push.sequence.sequence = 2;
  request.push.sequence.after = 1;
  EXPECT_THAT(CallStatus([&] { service().step(reply, request); }),
              StatusIs(StatusCode::kNotFound, HasSubstr("push \"absent\"")));
}

}  // namespace
}  // namespace cairn
