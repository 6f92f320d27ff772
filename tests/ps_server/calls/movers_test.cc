// The steps of a mover after another mover has begun, or after the mover has died.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/deadline.h"
#include "gmock/gmock.h"
#include "ps_server/engine/engine.h"
#include "tests/ps_server/moves_fixture.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MoversTest : public MovesTest {
 protected:
  // Another mover begins a move to version 2.
  absl::Status BeginAs(int64_t start) {
    start_ = start;
    return GiveUp(2);
  }
  wire::DescribeReply Described(int32_t server) {
    return *TestClient(Service(server), -1).Describe();
  }
  // Restarts the server so that calls wait long for memory.
  void MakePatient(int32_t server) {
    EngineOptions patient;
    patient.memory_wait = absl::Seconds(60);
    servers_[server].engine.reset();
    servers_[server].Open(server, kServers, patient);
    Greet(server);
  }
  // Takes all memory that the server has left; the result is for ReleaseMessage.
  int64_t TakeMemory(int32_t server) {
    const wire::DescribeReply described = Described(server);
    const int64_t room = described.memory_budget_bytes - described.memory_used_bytes;
    EXPECT_OK(servers_[server].engine->AcquireMessage(room));
    return room;
  }
  // Whether a call waits for `what` (WaitingCall.waits_for).
  bool WaitsFor(int32_t server, const std::string& what) {
    wire::WhyReply why;
    wire::Caller caller;
    caller.job = "job";
    Service(server).why(why, caller);
    return std::any_of(why.waiting.begin(), why.waiting.end(),
                       [&](const auto& call) { return call.waits_for == what; });
  }
  // The first step of `cairnctl servers remove`.
  absl::Status Close(int32_t server) {
    wire::ChangeMembersRequest request;
    request.caller.job = "tool";
    request.action = wire::MembersAction::CLOSE;
    request.index = server;
    wire::ChangeMembersReply reply;
    return CallStatus([&] { Service(server).change_members(reply, request); });
  }
};

TEST_F(MoversTest, WhatAnEarlierTryHasOnItsWayIsRefused) {
  ASSERT_OK(BeginAs(7));
  ASSERT_OK(Begin(0, 1, 2));
  ASSERT_OK(BeginAs(8));
  ASSERT_OK(UntilReady(0, 1, 2));
  wire::MoveRequest old = Request(wire::MoveAction::WRITE, 0, 1, 2);
  old.start = 7;
  EXPECT_TRUE(absl::IsFailedPrecondition(Step(1, old).status()));
  old.action = wire::MoveAction::COMMIT;
  EXPECT_THAT(Step(0, old).status().message(), HasSubstr("started again"));
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));
}

// The older mover can neither begin on servers that the newer one has not reached, nor discard rows
// that wait there.
TEST_F(MoversTest, OfTwoMoversTheOneThatBeganLaterGoesOn) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  const auto as = [this](int64_t start) { start_ = start; };
  as(7);
  ASSERT_OK(GiveUp(2));
  as(8);
  ASSERT_OK(GiveUp(2));
  as(7);
  EXPECT_THAT(Begin(0, 2, 2).message(), HasSubstr("another mover"));
  as(8);
  ASSERT_OK(UntilReady(0, 1, 2));
  as(7);
  EXPECT_THAT(At(1, wire::MoveAction::ABORT, 0, 1, 2).message(), HasSubstr("another mover"));
  EXPECT_THAT(At(0, wire::MoveAction::ABORT, 0, 1, 2).message(), HasSubstr("another mover"));
  as(8);
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));
  EXPECT_EQ(ReasonOf(Pull(1, {5}, 2).status()), wire::ErrorReason::BUSY);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
  ASSERT_OK(At(2, wire::MoveAction::COMMIT, 0, 1, 2));
  as(7);  // in the next map it is the only server
  ASSERT_OK(GiveUp(3));
  ASSERT_OK(Move(1, 0, 3));
}

// Otherwise it would report a wrong placement to its user.
TEST_F(MoversTest, AMoverThatAsksAgainIsToldThatAnotherOnesMapIsInForce) {
  ASSERT_OK(BeginAs(7));
  ASSERT_OK(UntilReady(0, 1, 2));
  ASSERT_OK(BeginAs(8));
  ASSERT_OK(Move(0, 2, 2));
  EXPECT_OK(At(0, wire::MoveAction::COMMIT, 0, 2, 2));
  start_ = 7;
  const absl::Status other = At(0, wire::MoveAction::COMMIT, 0, 1, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(other));
  EXPECT_THAT(other.message(), HasSubstr("by another mover"));
}

// The restarted server may have forgotten that another mover began later.
TEST_F(MoversTest, AMoverBeginsAnewWhereAServerWasRestarted) {
  ASSERT_OK(BeginAs(7));
  Crash(1);
  EXPECT_THAT(Begin(0, 1, 2).message(), HasSubstr("was restarted"));
  EXPECT_THAT(At(1, wire::MoveAction::ABORT, 0, 1, 2).message(), HasSubstr("was restarted"));
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(Move(0, 1, 2));
}

// A mover dies when ps:1 is ready; the next mover gives the rows to ps:2.
TEST_F(MoversTest, RowsThatWaitForAMoverThatIsGoneAreForgotten) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(UntilReady(0, 1, 2));
  Crash(1);  // the rows wait on its disk
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(Move(0, 2, 2));
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(Push(1, 2, 0, {5}, 2).ok());
    EXPECT_THAT(*Pull(2, {5}, 2), ElementsAre(-1));
    EXPECT_TRUE(Described(1).variables[0].shards.empty());
    Crash(1);
  }
  ASSERT_OK(Move(2, 1, 3));  // ps:1 can be a target again
  EXPECT_THAT(*Pull(1, {5}, 3), ElementsAre(-1));
}

// The same if ps:1 was not asked to discard them: they belong to a map that never took effect.
TEST_F(MoversTest, RowsOfAMapThatAnotherTookThePlaceOfAreNotTaken) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(UntilReady(0, 1, 2));
  ASSERT_OK(At(0, wire::MoveAction::ABORT, 0, 1, 2));
  ASSERT_OK(Move(0, 2, 2));  // ps:1 learns of the other map
  EXPECT_FALSE(Push(1, 2, 0, {5}, 2).ok());
  EXPECT_TRUE(Described(1).variables[0].shards.empty());
  ASSERT_OK(Begin(2, 1, 3));
}

// The server says that it has no rows and leaves; the source might then still give it rows.
TEST_F(MoversTest, AServerThatRowsAreOnTheirWayToDoesNotLeave) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(Begin(0, 1, 2));
  const absl::Status refused = Close(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(
      refused.message(),
      HasSubstr("rows of emb of job job are moving to ps:1, or their mover ended early: cairnctl "
                "rebalance --job job --empty ps:1 finishes the move"));
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(UntilReady(0, 1, 2));
  EXPECT_THAT(Close(1).message(), HasSubstr("are moving to ps:1"));
  Crash(1);
  EXPECT_THAT(Close(1).message(), HasSubstr("are moving to ps:1"));
  // The mover died before its COMMIT, so no other COMMIT may follow.
  ASSERT_OK(GiveUp(2));
  ASSERT_OK(Close(1));
  EXPECT_THAT(Begin(0, 1, 2).message(), HasSubstr("has left the cluster"));
  EXPECT_THAT(*Pull(0, {5}, 1), ElementsAre(-1));
  ASSERT_OK(Move(0, 2, 2));
}

TEST_F(MoversTest, AServerWithRowsStaysAndTakesMoreOfThem) {
  ASSERT_OK(Move(0, 1, 2));
  EXPECT_THAT(Close(1).message(), HasSubstr("has rows of 1 variables (emb of job job)"));
  ASSERT_OK(Move(1, 0, 3));
  ASSERT_OK(Move(0, 1, 4));
}

// An attempt that another one replaced, which got no further.
TEST_F(MoversTest, WhatWasGivenUpKeepsNobody) {
  ASSERT_OK(BeginAs(7));
  ASSERT_OK(Begin(0, 1, 2));
  ASSERT_OK(BeginAs(8));
  ASSERT_OK(Begin(0, 1, 2));
  EXPECT_FALSE(Close(1).ok());
  ASSERT_OK(BeginAs(9));
  ASSERT_OK(Close(1));
}

TEST_F(MoversTest, RowsThatWaitAreNotForgottenBeforeTheirSourceIsAsked) {
  ASSERT_OK(Push(0, 1, 0, {5}, 1));
  ASSERT_OK(UntilReady(0, 1, 2));
  ASSERT_OK(At(0, wire::MoveAction::COMMIT, 0, 1, 2));  // the mover dies
  EXPECT_FALSE(At(0, wire::MoveAction::ABORT, 0, 1, 2).ok());
  EXPECT_THAT(At(1, wire::MoveAction::ABORT, 0, 1, 3).message(), HasSubstr("COMMIT it"));
  EXPECT_EQ(ReasonOf(Pull(1, {5}, 2).status()), wire::ErrorReason::BUSY);
  EXPECT_THAT(*Pull(1, {5}, 2), ElementsAre(-1));
}

TEST_F(MoversTest, AStepThatStalledDoesNotWriteAnOldMapOverANewerOne) {
  ASSERT_NO_FATAL_FAILURE(MakePatient(1));
  ASSERT_OK(BeginAs(7));
  const int64_t room = TakeMemory(1);
  absl::Status stalled;
  std::thread step([&] { stalled = At(1, wire::MoveAction::PREPARE, 0, 1, 2); });
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  while (!WaitsFor(1, "memory") && !deadline.Expired()) std::this_thread::yield();
  EXPECT_TRUE(WaitsFor(1, "memory"));
  start_ = 8;
  EXPECT_OK(GiveUp(2));
  EXPECT_OK(Move(0, 2, 2));
  EXPECT_EQ(Described(1).variables[0].spec.map_version, 2);
  servers_[1].engine->ReleaseMessage(room);
  step.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(stalled)) << stalled;
  ASSERT_NO_FATAL_FAILURE(Crash(1));
  EXPECT_EQ(Described(1).variables[0].spec.map_version, 2);
}

// The update began before the worker's next start said hello to the source.
TEST_F(MoversTest, AFenceWaitsForTheUpdateOfTheStartThatItFences) {
  ASSERT_NO_FATAL_FAILURE(MakePatient(1));
  wire::VariableSpec other = Table();
  other.name = "other";
  other.bucket_ps = {1};
  ASSERT_OK(TestClient(Service(1), -1).Create({other}));
  TestClient before(Service(1), 0);
  ASSERT_OK(before.Hello(incarnation_));
  ASSERT_OK(TestClient(Service(0), 0).Hello());
  ASSERT_OK(Begin(0, 1, 2));
  ASSERT_OK(At(0, wire::MoveAction::HOLD, 0, 1, 2));
  ASSERT_OK(Copy(0, 1, 2));
  const int64_t room = TakeMemory(1);
  std::vector<int64_t> keys(5000);
  std::iota(keys.begin(), keys.end(), 0);
  std::thread pushes(
      [&] { EXPECT_OK(before.PushKeys("other", keys, std::vector<float>(keys.size(), 1))); });
  std::atomic<bool> ready = false;
  const Deadline deadline = Deadline::In(absl::Seconds(20));
  while (!WaitsFor(1, "memory") && !deadline.Expired()) std::this_thread::yield();
  std::thread fences([&] {
    EXPECT_OK(At(1, wire::MoveAction::READY, 0, 1, 2));
    ready = true;
  });
  while (!ready && !WaitsFor(1, "order") && !deadline.Expired()) std::this_thread::yield();
  EXPECT_FALSE(ready);
  EXPECT_TRUE(WaitsFor(1, "order"));
  servers_[1].engine->ReleaseMessage(room);
  pushes.join();
  fences.join();
  const absl::Status fenced = before.PushKeys("other", {1}, {1}).status();
  EXPECT_EQ(ReasonOf(fenced), wire::ErrorReason::FENCED);
  EXPECT_THAT(fenced.message(),
              HasSubstr(absl::StrCat("incarnation ", incarnation_ + 1,
                                     " (not joined here yet) has taken its place")));
}

// The source keeps the memory of a READ for the next READ of the same pass.
TEST_F(MoversTest, TheMemoryOfAReadIsFreedAfterTheMoverHasDied) {
  EngineOptions brief;
  brief.lease = absl::Milliseconds(20);  // as long as a mover may be silent
  servers_[0].engine.reset();
  servers_[0].Open(0, kServers, brief);
  wire::VariableSpec wide = Table();
  wide.name = variable_ = "wide";
  wide.bucket_ps.assign(2, 0);
  for (int32_t s = 0; s < kServers; ++s) ASSERT_OK(TestClient(Service(s), -1).Create({wide}));
  std::vector<int64_t> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  ASSERT_OK(
      TestClient(Service(0), -1).PushKeys(variable_, keys, std::vector<float>(keys.size(), -1)));
  others_ = {1};
  ASSERT_OK(Begin(0, 1, 2));
  const auto used = [&] { return Described(0).memory_used_bytes; };
  const int64_t before = used();
  wire::MoveRequest read = Request(wire::MoveAction::READ, 0, 1, 2);
  read.max_bytes = 1;
  const auto first = Step(0, read);
  ASSERT_OK(first);
  ASSERT_GT(first->bytes_left, 0);
  const Deadline deadline = Deadline::In(absl::Seconds(30));
  while (used() > before && !deadline.Expired()) std::this_thread::yield();
  EXPECT_EQ(used(), before);
  const auto second = Step(0, read);  // the mover was only slow
  ASSERT_OK(second);
  EXPECT_EQ(second->bytes_left, 0);
  EXPECT_EQ(used(), before);
}

// A snapshot may take seconds, and updates are held meanwhile.
TEST_F(MoversTest, FencesOfManyWorkersAreDurableWithoutASnapshot) {
  constexpr int32_t kWorkers = 4;
  std::vector<int64_t> granted;
  for (int32_t w = 1; w <= kWorkers; ++w) {  // ps:1 does not know these
    ASSERT_OK(TestClient(Service(0), w).Hello());
    granted.push_back(TestClient(Service(0), w).Hello()->incarnation);
  }
  const auto epochs = [this](int32_t server) { return Described(server).counters.at("epochs"); };
  ASSERT_OK(Begin(0, 1, 2));
  const int64_t before = epochs(1);
  ASSERT_OK(At(0, wire::MoveAction::HOLD, 0, 1, 2));
  ASSERT_OK(Copy(0, 1, 2));
  ASSERT_OK(At(1, wire::MoveAction::READY, 0, 1, 2));
  EXPECT_EQ(epochs(1), before);
  CrashUnseen(1);
  for (int32_t w = 1; w <= kWorkers; ++w) {
    const int64_t present = granted[static_cast<size_t>(w - 1)];
    EXPECT_EQ(ReasonOf(TestClient(Service(1), w).Hello(present - 1).status()),
              wire::ErrorReason::FENCED);
    EXPECT_OK(TestClient(Service(1), w).Hello(present));
  }
}

// READY fences the worker without making its updates durable. The hello of its next start does so;
// after a crash before that, the next start learns that the updates are missing.
TEST_F(MoversTest, UpdatesOfAFencedStartCountOnce) {
  wire::VariableSpec other = Table();
  other.name = "other";
  other.bucket_ps = {1};
  ASSERT_OK(TestClient(Service(1), -1).Create({other}));
  int64_t pushes = 0;
  for (const bool crashes_early : {true, false}) {
    TestClient fenced(Service(1), 0);
    ASSERT_OK(fenced.Hello(incarnation_));
    ASSERT_OK(fenced.PushKeys("other", {1}, {1}));
    ++pushes;
    ASSERT_OK(TestClient(Service(0), 0).Hello());  // ps:0 knows the next start, ps:1 does not
    ++incarnation_;
    ASSERT_OK(GiveUp(2));
    ASSERT_OK(UntilReady(0, 1, 2));
    EXPECT_EQ(ReasonOf(fenced.PushKeys("other", {1}, {1}).status()), wire::ErrorReason::FENCED);
    if (crashes_early) CrashUnseen(1);
    TestClient next(Service(1), 0);
    const auto hello = next.Hello(incarnation_);
    ASSERT_OK(hello);
    EXPECT_EQ(hello->state.durable, hello->state.applied);
    if (hello->state.applied < pushes) {
      ASSERT_OK(next.PushKeys("other", {1}, {1}));
      ASSERT_OK(next.Flush());
    }
    CrashUnseen(1);
    EXPECT_THAT(*TestClient(Service(1), -1).PullKeys("other", {1}), ElementsAre(-pushes));
  }
}

// Otherwise the step that the fenced start announced would count for the new start, which is behind
// it, and others would run ahead of the bound.
TEST_F(MoversTest, AfterAFenceTheHelloOfTheNewStartIsItsFirst) {
  const auto hello = [this](int32_t worker, int64_t incarnation, int64_t step) {
    wire::HelloRequest request;
    request.protocol_version = 1;
    request.job = "job";
    request.task_type = "worker";
    request.origin = "test/1";
    request.worker = worker;
    request.incarnation = incarnation;
    request.step = step;
    request.consistency.mode = wire::ConsistencyMode::SSP;
    request.__isset.consistency = true;
    wire::HelloReply reply;
    EXPECT_OK(CallStatus([&] { Service(1).hello(reply, request); }));
    return reply.step;
  };
  EXPECT_EQ(hello(1, 1, 3), 3);
  EXPECT_EQ(hello(0, incarnation_, 9), 9);
  ASSERT_OK(TestClient(Service(0), 0).Hello());
  ASSERT_OK(UntilReady(0, 1, 2));
  EXPECT_EQ(hello(0, incarnation_ + 1, 4), 4);
}

// Else a restart of this server would wait for the worker until its lease ends.
TEST_F(MoversTest, AWorkerThatHasLeftIsStillAwayAfterAFence) {
  wire::Caller caller;
  caller.job = "job";
  caller.worker = 0;
  caller.incarnation = incarnation_;
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { Service(1).leave(state, caller); }));
  ASSERT_OK(TestClient(Service(0), 0).Hello());
  ASSERT_OK(UntilReady(0, 1, 2));
  CrashUnseen(1);
  EXPECT_EQ(servers_[1].engine->live_workers(), 0);
}

}  // namespace
}  // namespace cairn
