// Sessions: hello, resuming, leases, leaving; and servers that are lost, return, restart or answer
// too late. A proxy in front of a real listener cuts connections.
#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/support/addresses.h"
#include "tests/worker/client/fleet.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<VariableSpec> OnEach(int32_t servers) {
  std::vector<VariableSpec> specs;
  for (int32_t s = 0; s < servers; ++s) {
    specs.push_back(Dense("v" + std::to_string(s), {2}, {{0, 2, s}}));
  }
  return specs;
}

// Waits for a condition, never for a fixed time.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const Deadline deadline = Soon();
  while (!deadline.Expired()) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return false;
}

TEST(Connect, NamesEveryServerThatIsAbsent) {
  ClientOptions options = Fleet::Options();
  options.servers = {NobodysAddress()};
  options.ps_wait = absl::Milliseconds(50);
  EXPECT_THAT(PsClient::Connect(options, Soon()),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:0 (" + NobodysAddress() + ") has been down since"),
                             HasSubstr("Connection refused"), HasSubstr("50ms"))));
  Fleet fleet(3, true);
  fleet.proxy(1).Shut();
  fleet.proxy(2).Shut();
  ClientOptions two_gone = Fleet::Options();
  two_gone.ps_wait = absl::Milliseconds(50);
  EXPECT_THAT(fleet.TryConnect(two_gone),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:1"), HasSubstr("ps:2"), Not(HasSubstr("ps:0")))));
}

TEST(Connect, DoesNotWaitForAnAddressThatIsNone) {
  ClientOptions options = Fleet::Options();
  options.servers = {"nowhere"};
  EXPECT_THAT(PsClient::Connect(options, Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nowhere")));
  options.servers = {};
  EXPECT_THAT(PsClient::Connect(options, Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no parameter servers")));
  EXPECT_THAT(PsClient::ConnectInProcess(Fleet::Options(), {nullptr}, Soon()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ps:0 is null")));
}

TEST(Connect, RefusesAnotherProtocolAndAnotherClusterFile) {
  Fleet fleet(1, true);
  fleet.fake(0).protocol_version = 99;
  EXPECT_THAT(fleet.TryConnect(Fleet::Options()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("version 99"), HasSubstr("this client 1"))));
  FakeService second_of_two(1, 2);
  EXPECT_THAT(PsClient::ConnectInProcess(Fleet::Options(), {&second_of_two}, Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ps:1 of 2")));
}

TEST(Connect, WaitsForAServerThatComesLater) {
  Fleet fleet(2, true);
  fleet.proxy(1).Shut();
  std::thread opener([&] {
    // Once ps:0 has answered hello, the client calls ps:1, which refuses.
    EXPECT_TRUE(Eventually([&] { return fleet.fake(0).calls("hello") > 0; }));
    fleet.proxy(1).Open();
  });
  EXPECT_OK(fleet.TryConnect(Fleet::Options()));
  opener.join();
}

TEST(Resume, ContinuesAfterThePushThatEveryServerHas) {
  Fleet fleet(2, false);
  const std::vector<float> ones = {1, 1};
  {
    const auto client = fleet.Connect();
    EXPECT_EQ(client->position(), "");
    ASSERT_OK(client->Create(OnEach(2), Soon()));
    for (const char* position : {"one", "two"}) {
      ASSERT_OK(client->Push({Whole("v0", ones), Whole("v1", ones)}, position, Soon()));
    }
    // The third push has no part on ps:1, which the next message would tell about it.
    ASSERT_OK(client->Push({Whole("v0", ones)}, "three", Soon()));
  }
  {
    const auto client = fleet.Connect();
    EXPECT_EQ(client->position(), "three");
    ASSERT_OK(client->Create(OnEach(2), Soon()));
    ASSERT_OK(client->Push({Whole("v0", ones), Whole("v1", ones)}, "four", Soon()));
  }
  EXPECT_THAT(fleet.fake(0).sequences(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(fleet.fake(1).sequences(), ElementsAre(1, 2, 4));
}

TEST(Resume, ComputesAgainWhatOneServerLacksAndTheOtherDropsIt) {
  Fleet fleet(2, false);
  const std::vector<float> ones = {1, 1};
  {
    const auto client = fleet.Connect();
    ASSERT_OK(client->Create(OnEach(2), Soon()));
    ASSERT_OK(client->Push({Whole("v0", ones), Whole("v1", ones)}, "one", Soon()));
    // ps:1 becomes unreachable for this client before the second push reaches it.
    fleet.fake(1).before = [](absl::string_view method) {
      if (method == "push") throw std::runtime_error("gone");
    };
    EXPECT_FALSE(client->Push({Whole("v0", ones), Whole("v1", ones)}, "two", Soon()).ok());
    // No push may follow one whose outcome is unknown.
    EXPECT_THAT(client->Push({Whole("v0", ones)}, "three", Soon()),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("push 2")));
  }
  fleet.fake(1).before = nullptr;
  const auto client = fleet.Connect();
  EXPECT_EQ(client->position(), "one");
  ASSERT_OK(client->Create(OnEach(2), Soon()));
  ASSERT_OK(client->Push({Whole("v0", ones), Whole("v1", ones)}, "two", Soon()));
  EXPECT_THAT(PullWhole(*client, "v0", 2), ElementsAre(-2, -2));
  EXPECT_THAT(PullWhole(*client, "v1", 2), ElementsAre(-2, -2));
}

class CutConnections : public ::testing::Test {
 protected:
  CutConnections() { options_.rpc_timeout = absl::Seconds(5); }
  std::unique_ptr<PsClient> Connect() {
    auto client = fleet_.Connect(options_);
    EXPECT_OK(client->Create(OnEach(2), Soon()));
    return client;
  }

  Fleet fleet_{2, true};
  ClientOptions options_ = Fleet::Options();
  const std::vector<float> ones_ = {1, 1};
};

TEST_F(CutConnections, APushWhoseAnswerIsLostIsAppliedOnce) {
  const auto client = Connect();
  for (int i = 0; i < 5; ++i) {
    fleet_.proxy(1).DropReplies(1);
    ASSERT_OK(client->Push({Whole("v0", ones_), Whole("v1", ones_)}, "", Soon()));
    ASSERT_EQ(fleet_.proxy(1).replies_to_drop(), 0);
  }
  EXPECT_THAT(PullWhole(*client, "v0", 2), ElementsAre(-5, -5));
  EXPECT_THAT(PullWhole(*client, "v1", 2), ElementsAre(-5, -5));
  EXPECT_EQ(client->counters().retries, 5);
  EXPECT_EQ(fleet_.fake(1).calls("push"), 10);
}

TEST_F(CutConnections, APushWithoutANumberIsNeverSentTwice) {
  options_ = Fleet::Options(-1);
  const auto client = Connect();
  fleet_.proxy(1).DropReplies(1);
  EXPECT_THAT(client->Push({Whole("v1", ones_)}, "", Soon()),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:1"), HasSubstr("unknown whether"))));
  EXPECT_EQ(fleet_.fake(1).calls("push"), 1);
  // A connection that the server cut while it was idle is not used, so no call is lost with it.
  fleet_.proxy(1).Shut();
  fleet_.proxy(1).Open();
  EXPECT_OK(client->Push({Whole("v1", ones_)}, "", Soon()));
}

TEST_F(CutConnections, CallsThatChangeNothingAreRepeated) {
  const auto client = Connect();
  fleet_.proxy(0).DropReplies(1);
  EXPECT_OK(client->Describe(Soon()));
  fleet_.proxy(0).DropReplies(1);
  EXPECT_OK(client->Create(OnEach(2), Soon()));
  fleet_.proxy(0).DropReplies(1);
  EXPECT_OK(client->Flush(Soon()));
  fleet_.proxy(0).DropReplies(1);
  PullWhole(*client, "v0", 2);
  EXPECT_EQ(client->counters().retries, 4);
}

TEST_F(CutConnections, DropsTheJobThoughTheAnswerIsLost) {
  const auto client = Connect();
  ASSERT_OK(client->Push({Whole("v0", ones_), Whole("v1", ones_)}, "", Soon()));
  fleet_.proxy(1).DropReplies(1);
  ASSERT_OK(client->DropJob(Soon()));
  ASSERT_OK(client->Create(OnEach(2), Soon()));
  ASSERT_OK(client->Push({Whole("v0", ones_), Whole("v1", ones_)}, "", Soon()));
  EXPECT_THAT(PullWhole(*client, "v1", 2), ElementsAre(-1, -1));
}

TEST_F(CutConnections, GoesOnWhenAServerIsBack) {
  const auto client = Connect();
  ASSERT_OK(client->Push({Whole("v0", ones_), Whole("v1", ones_)}, "", Soon()));
  fleet_.proxy(1).Shut();
  std::thread opener([&] {
    // The push has reached ps:0, so the client now tries ps:1.
    EXPECT_TRUE(Eventually([&] { return fleet_.fake(0).applied(0) == 2; }));
    fleet_.proxy(1).Open();
  });
  EXPECT_OK(client->Push({Whole("v0", ones_), Whole("v1", ones_)}, "", Soon()));
  opener.join();
  EXPECT_THAT(PullWhole(*client, "v1", 2), ElementsAre(-2, -2));
}

TEST_F(CutConnections, GivesUpAfterPsWaitAndSaysWhoSinceWhenAndWhy) {
  options_.ps_wait = absl::Milliseconds(50);
  const auto client = Connect();
  fleet_.proxy(1).Shut();
  std::vector<float> out(2);
  EXPECT_THAT(
      client->Pull({WholeInto("v0", &out), WholeInto("v1", &out)}, Soon()),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("ps:1 (" + OwnHost() + ":"), HasSubstr("has been down since"),
                     HasSubstr("after 50ms"), Not(HasSubstr("ps:0")))));
}

TEST_F(CutConnections, ADeadlineNamesTheServerThatDidNotAnswer) {
  const auto client = Connect();
  // Shared, because the server's thread may still use it after the test has ended.
  const auto release = std::make_shared<absl::Notification>();
  fleet_.fake(1).before = [release](absl::string_view method) {
    if (method == "pull") release->WaitForNotificationWithTimeout(absl::Seconds(20));
  };
  std::vector<float> out(2), other(2);
  EXPECT_THAT(client->Pull({WholeInto("v0", &out), WholeInto("v1", &other)},
                           Deadline::In(absl::Seconds(3))),  // ps:0 answers within it
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("ps:1"), Not(HasSubstr("ps:0")))));
  release->Notify();
}

TEST_F(CutConnections, OneAttemptIsBoundedAndThenRepeated) {
  options_.rpc_timeout = absl::Seconds(1);
  const auto client = Connect();
  const auto release = std::make_shared<absl::Notification>();
  std::atomic<int> pulls = 0;
  fleet_.fake(1).before = [release, &pulls](absl::string_view method) {
    if (method == "pull" && ++pulls == 1) {
      release->WaitForNotificationWithTimeout(absl::Seconds(20));
    }
  };
  PullWhole(*client, "v1", 2);
  EXPECT_GE(pulls, 2);
  release->Notify();
}

TEST_F(CutConnections, ARestartThatKeptEverythingIsNotNoticed) {
  const auto client = Connect();
  ASSERT_OK(client->Push({Whole("v0", ones_), Whole("v1", ones_)}, "", Soon()));
  fleet_.fake(1).Reboot(/*durable=*/1);
  ASSERT_OK(client->Push({Whole("v0", ones_), Whole("v1", ones_)}, "", Soon()));
  fleet_.fake(0).Reboot(2);
  EXPECT_THAT(PullWhole(*client, "v0", 2), ElementsAre(-2, -2));
  EXPECT_THAT(fleet_.fake(1).sequences(), ElementsAre(1, 2));
}

// The server had reported the pushes durable, so the client did not retain them.
TEST_F(CutConnections, ARestartThatLostDurablePushesEndsTheClient) {
  const auto client = Connect();
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(client->Push({Whole("v0", ones_), Whole("v1", ones_)}, "", Soon()));
  }
  fleet_.fake(1).Reboot(/*durable=*/2);
  std::vector<float> out(2);
  const auto lost = StatusIs(absl::StatusCode::kFailedPrecondition,
                             AllOf(HasSubstr("ps:1"), HasSubstr("3…5"),
                                   HasSubstr("on an older copy"), HasSubstr("--fresh")));
  EXPECT_THAT(client->Pull({WholeInto("v1", &out)}, Soon()), lost);
  EXPECT_THAT(client->Push({Whole("v1", ones_)}, "", Soon()), lost);
  // The other server is not affected.
  EXPECT_OK(client->Pull({WholeInto("v0", &out)}, Soon()));
}

TEST(OtherServer, IsAskedSeldomAndIsTheReasonOfTheError) {
  Fleet fleet(2, false);
  ClientOptions options = Fleet::Options();
  options.ps_wait = absl::Milliseconds(500);
  const auto client = fleet.Connect(options);
  ASSERT_OK(client->Create({Dense("w", {2}, {{.first_row = 0, .rows = 2, .ps = 1}})}, Soon()));
  fleet.fake(1).Reboot(/*durable=*/0);
  fleet.fake(1).answers_as = 0;
  const int64_t before = fleet.fake(1).calls("hello");
  EXPECT_THAT(client->Push({Whole("w", {1, 1})}, "", Soon()),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:1"), HasSubstr("says that it is ps:0 of 2"),
                             HasSubstr("gave up after 500ms"))));
  // 10 ms, doubling, each shortened by up to half.
  EXPECT_LT(fleet.fake(1).calls("hello") - before, 15);
}

TEST_F(CutConnections, ErrorsOfSeveralServersAreAllNamed) {
  options_.ps_wait = absl::Milliseconds(50);
  const auto client = Connect();
  fleet_.proxy(0).Shut();
  fleet_.proxy(1).Shut();
  std::vector<float> out(2);
  EXPECT_THAT(
      client->Pull({WholeInto("v0", &out), WholeInto("v1", &out)}, Soon()),
      StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("ps:0"), HasSubstr("ps:1"))));
}

TEST(Lease, IsKeptByHeartbeatsThatEndWithTheClient) {
  Fleet fleet(2, true);
  // Every heartbeat has a third of it: none is given up, and then counted late.
  for (int32_t s = 0; s < 2; ++s) fleet.fake(s).lease_seconds = 3;
  auto client = fleet.Connect();
  ASSERT_OK(client->Create(OnEach(2), Soon()));
  ASSERT_OK(client->Push({Whole("v0", {1, 1})}, "", Soon()));
  EXPECT_TRUE(Eventually([&] {
    return fleet.fake(0).calls("heartbeat") > 2 && fleet.fake(1).calls("heartbeat") > 2;
  }));
  // The heartbeats tell the other server about the push that has no part there.
  EXPECT_TRUE(Eventually([&] { return fleet.fake(1).applied(0) == 1; }));
  ASSERT_OK(client->Leave(Soon()));
  EXPECT_EQ(fleet.fake(0).calls("leave"), 1);
  const int64_t beats = fleet.fake(0).calls("heartbeat");
  EXPECT_THAT(client->Push({Whole("v0", {1, 1})}, "", Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has left")));
  client.reset();
  EXPECT_EQ(fleet.fake(0).calls("heartbeat"), beats);
}

// Heartbeats are sent concurrently: unanswered ones do not delay the others.
TEST(Lease, IsKeptOnTheOtherServersWhereSomeDoNotAnswer) {
  absl::Mutex mutex;
  std::vector<absl::Duration> beats;  // when the last server got each
  const auto release = std::make_shared<absl::Notification>();
  Fleet fleet(5, true);
  for (int32_t s = 0; s < 5; ++s) {
    fleet.fake(s).lease_seconds = 0.6;
    fleet.fake(s).before = [&, release, s](absl::string_view method) {
      if (method != "heartbeat") return;
      if (s < 4) {
        release->WaitForNotificationWithTimeout(absl::Seconds(20));
      } else {
        absl::MutexLock lock(&mutex);
        beats.push_back(MonotonicNow());
      }
    };
  }
  auto client = fleet.Connect();
  EXPECT_TRUE(Eventually([&] {
    absl::MutexLock lock(&mutex);
    return beats.size() >= 4;
  }));
  release->Notify();
  client.reset();
  absl::MutexLock lock(&mutex);
  for (size_t i = 1; i < beats.size(); ++i) EXPECT_LT(beats[i] - beats[i - 1], absl::Seconds(2));
}

TEST(Lease, IsKeptWhileAServerThatHasJoinedDoesNotAnswer) {
  absl::Mutex mutex;
  std::vector<absl::Duration> beats;  // when ps:0, which names the server, got each
  Fleet fleet(2, true);
  for (int32_t s = 0; s < 2; ++s) fleet.fake(s).lease_seconds = 1;
  fleet.fake(0).before = [&](absl::string_view method) {
    absl::MutexLock lock(&mutex);
    if (method == "heartbeat") beats.push_back(MonotonicNow());
  };
  auto client = fleet.Connect();
  fleet.fake(0).AddMember(2, NobodysAddress());
  EXPECT_TRUE(Eventually([&] { return fleet.fake(0).calls("members") > 0; }));
  const absl::Duration asked = MonotonicNow();
  EXPECT_TRUE(Eventually([&] {
    absl::MutexLock lock(&mutex);
    return beats.size() >= 4 && beats.back() > asked + absl::Seconds(2);
  }));
  client.reset();
  absl::MutexLock lock(&mutex);
  for (size_t i = 1; i < beats.size(); ++i) EXPECT_LT(beats[i] - beats[i - 1], absl::Seconds(2));
}

TEST(Lease, IsKeptWhereTheProgramsFunctionThrows) {
  Fleet fleet(1, false);
  fleet.fake(0).lease_seconds = 3;
  ClientOptions options = Fleet::Options();
  std::atomic<int> calls = 0;
  options.vitals = [&]() -> TrainingVitals {
    ++calls;
    throw std::runtime_error("no vitals");
  };
  const auto client = fleet.Connect(options);
  EXPECT_TRUE(Eventually([&] { return fleet.fake(0).calls("heartbeat") > 2; }));
  EXPECT_GT(calls, 2);
}

// The limit of a server that joins holds for every later push, before any server gets its part.
TEST(Join, LowersTheLimitOfMessages) {
  Fleet fleet(2, true);
  for (int32_t s = 0; s < 2; ++s) fleet.fake(s).lease_seconds = 3;
  FakeService third(2, 3);
  third.max_message_bytes = 1 << 20;
  const auto listener = Listener::Start(third.engine(), OnOwnAddress<ListenerOptions>()).value();
  const auto client = fleet.Connect();
  fleet.fake(0).AddMember(2, listener->address());
  ASSERT_TRUE(Eventually([&] { return client->server_count() == 3; }));
  const int64_t rows = 300'000;
  ASSERT_OK(
      client->Create({Dense("a", {2}, {{0, 2, 0}}), Dense("big", {rows}, {{0, rows, 2}})}, Soon()));
  EXPECT_THAT(
      client->Push({Whole("a", {1, 1}), Whole("big", std::vector<float>(rows))}, "", Soon()),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ps:2")));
  EXPECT_THAT(PullWhole(*client, "a", 2), ElementsAre(0, 0));
}

TEST(Lease, OfAToolIsNone) {
  Fleet fleet(1, false);
  fleet.fake(0).lease_seconds = 0.01;
  const auto tool = fleet.Connect(Fleet::Options(-1));
  ASSERT_OK(tool->Leave(Soon()));
  EXPECT_EQ(fleet.fake(0).calls("heartbeat"), 0);
  EXPECT_EQ(fleet.fake(0).calls("flush"), 1);
}

}  // namespace
}  // namespace cairn::test
