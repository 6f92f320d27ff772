// What a server refuses when its memory budget is exhausted; a refused request changes nothing, and
// memory is released again.
#include <map>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "ps_server/base/memory_budget.h"
#include "tests/ps_server/server_fixture.h"
#include "thrift/errors.h"

namespace cairn {
namespace {

using absl::StatusCode;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Lt;

TEST(MemoryBudget, AcquireWaitsForReleasesAndThenGivesUp) {
  MemoryBudget patient(100, absl::Seconds(30));
  ASSERT_OK(patient.Acquire(80, "a"));
  std::thread release([&] { patient.Release(50); });
  EXPECT_OK(patient.Acquire(60, "b"));
  release.join();
  EXPECT_EQ(patient.used_bytes(), 90);

  MemoryBudget hasty(100, absl::Milliseconds(1));
  ASSERT_OK(hasty.Acquire(80, "a"));
  const absl::Status status = hasty.Acquire(60, "b");
  EXPECT_THAT(status,
              StatusIs(StatusCode::kResourceExhausted,
                       HasSubstr("b needs 60 bytes; 80 of 100 bytes of memory are in use")));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::MEMORY_BUDGET);
  EXPECT_FALSE(hasty.TryAcquire(21));
  EXPECT_TRUE(hasty.TryAcquire(20));
}

TEST(MemoryBudget, AHoldReleasesWhatIsNotKept) {
  MemoryBudget budget(100, absl::ZeroDuration());
  ASSERT_OK(budget.Acquire(50, "a"));
  {
    MemoryHold hold(budget, 50);
    EXPECT_EQ(hold.Transfer(20), 20);
  }
  EXPECT_EQ(budget.used_bytes(), 20);
}

// For example a row without numbers, while rows take more than the limit.
TEST(MemoryBudget, NoBytesAreAlwaysAvailable) {
  MemoryBudget budget(100, absl::ZeroDuration());
  budget.Force(101);
  EXPECT_OK(budget.Acquire(0, "nothing"));
  EXPECT_TRUE(budget.TryAcquire(0));
  EXPECT_EQ(budget.used_bytes(), 101);
}

TEST(MemoryBudget, LoadedRowsLeaveMemoryForExpectedCharges) {
  MemoryBudget budget(1000, absl::ZeroDuration());
  EXPECT_EQ(budget.load_bytes(), budget.low_bytes());
  budget.Expect(300);
  EXPECT_EQ(budget.load_bytes(), budget.low_bytes() - 300);
  EXPECT_OK(budget.Acquire(1000, "what is asked for"));
}

TEST(MemoryBudget, ALargeRequestGoesFirstWhileMemoryIsFreed) {
  MemoryBudget budget(100, absl::Seconds(30));
  budget.BeginReclaiming(absl::Seconds(30));
  ASSERT_OK(budget.Acquire(90, "rows"));
  std::thread large([&] { EXPECT_OK(budget.Acquire(60, "large")); });
  const auto await = [&](bool room) {
    const Deadline end = Deadline::In(absl::Seconds(30));
    bool found = !room;
    while (found != room && !end.Expired()) {
      found = budget.TryAcquire(5);
      if (found) budget.Release(5);
    }
    EXPECT_EQ(found, room);
  };
  await(true);
  // Rounds that free memory: after a while other calls are refused, although memory is free.
  const Deadline end = Deadline::In(absl::Seconds(30));
  while (budget.AwaitShortage(absl::Milliseconds(1)) != 40 && !end.Expired()) budget.EndRound(true);
  budget.EndRound(true);
  await(false);
  // A round that frees nothing.
  budget.AwaitShortage(absl::Milliseconds(1));
  budget.EndRound(false);
  await(true);
  budget.AwaitShortage(absl::Milliseconds(1));
  await(false);
  std::thread small([&] { EXPECT_OK(budget.Acquire(5, "small")); });  // queued behind it
  budget.Release(60);
  large.join();
  small.join();
  EXPECT_EQ(budget.used_bytes(), 95);
  await(true);
  budget.EndReclaiming();
}

TEST(MemoryBudget, OnlyCallsThatStillWaitDecideHowMuchIsFreed) {
  WaitBoard board;
  MemoryBudget budget(100, absl::Seconds(30), &board);
  budget.BeginReclaiming(absl::Seconds(30));
  ASSERT_OK(budget.Acquire(100, "rows"));
  const auto rounds_until = [&](const auto& done) {
    const Deadline end = Deadline::In(absl::Seconds(30));
    bool found = false;
    while (!found && !end.Expired()) {
      found = done(budget.AwaitShortage(absl::Milliseconds(1)).value_or(-1));
      budget.EndRound(true);
    }
    EXPECT_TRUE(found);
  };
  std::thread large([&] { EXPECT_OK(budget.Acquire(60, "large")); });
  // Until free memory is for it alone.
  budget.Release(10);
  rounds_until([&](int64_t goal) {
    const bool free = budget.TryAcquire(1);
    if (free) budget.Release(1);
    return goal == 40 && !free;
  });
  std::thread small([&] { EXPECT_OK(budget.Acquire(10, "small")); });
  rounds_until([&](int64_t) {
    std::map<std::string, int64_t> waiting;
    board.Count(waiting);
    return waiting["memory"] == 2;
  });
  budget.Release(59);
  large.join();
  EXPECT_EQ(budget.used_bytes(), 91);
  rounds_until([&](int64_t goal) { return goal == 90; });
  budget.Release(31);
  small.join();
  budget.EndReclaiming();
}

class MemoryTest : public ServerTest {
 protected:
  void SetUp() override {
    options_.memory_budget_bytes = 16 << 20;
    options_.memory_wait = absl::Milliseconds(1);
    ASSERT_NO_FATAL_FAILURE(Start());
  }
  int64_t Used() { return Client().Describe()->memory_used_bytes; }
};

TEST_F(MemoryTest, AVariableBeyondTheBudgetIsRejectedAndLeavesNothingBehind) {
  TestClient client = Client();
  const int64_t before = Used();
  const absl::Status status =
      client.Create({DenseSpec("small", {1000}, WireOptimizer("adam", 1)),
                     DenseSpec("huge", {1 << 22}, WireOptimizer("adam", 1))});
  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("variable \"huge\"")));
  EXPECT_EQ(ReasonOf(status), wire::ErrorReason::MEMORY_BUDGET);
  EXPECT_EQ(Used(), before);
  EXPECT_FALSE(client.Pull("small").ok());
}

TEST_F(MemoryTest, ADroppedJobReleasesItsMemory) {
  const int64_t before = Used();
  TestClient client = Joined(0);
  ASSERT_OK(client.Create({DenseSpec("w", {100000}, WireOptimizer("adam", 1)),
                           TableSpec("t", 16, WireOptimizer("sgd", 1))}));
  ASSERT_OK(client.PushKeys("t", {1, 2, 3}, std::vector<float>(48, 1)));
  EXPECT_GT(Used(), before + 1200000);
  wire::ServerState state;
  ASSERT_OK(CallStatus([&] { service().drop_job(state, client.caller()); }));
  EXPECT_EQ(Used(), before);
}

TEST_F(MemoryTest, MessagesShareTheBudget) {
  EXPECT_THAT(AcquireMessage(15 << 20),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("a message to ps:0")));
  ASSERT_OK(AcquireMessage(10 << 20));
  TestClient client = Client();
  EXPECT_THAT(client.Create({DenseSpec("w", {1 << 20}, WireOptimizer("sgd", 1))}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("variable \"w\"")));
  ReleaseMessage(10 << 20);
  EXPECT_OK(client.Create({DenseSpec("w", {1 << 20}, WireOptimizer("sgd", 1))}));
}

// Otherwise no push would find memory for its message.
TEST_F(MemoryTest, VariablesLeaveRoomForCalls) {
  options_.memory_budget_bytes = 128 << 20;
  ASSERT_NO_FATAL_FAILURE(Restart());
  TestClient client = Joined(0);
  absl::Status created;
  int variables = 0;
  while (created.ok() && variables < 40) {
    created = client.Create(
        {DenseSpec(absl::StrCat("w", variables), {1 << 20}, WireOptimizer("sgd", 1))});
    variables += created.ok();
  }
  EXPECT_GE(variables, 24);
  EXPECT_THAT(created, StatusIs(StatusCode::kResourceExhausted,
                                HasSubstr("seven eighths of --memory_budget_bytes")));
  EXPECT_EQ(ReasonOf(created), wire::ErrorReason::MEMORY_BUDGET);
  ASSERT_OK(AcquireMessage(4 << 20));  // as the reader of the message does
  EXPECT_OK(client.Push("w0", std::vector<float>(1 << 20, 1)));
  ReleaseMessage(4 << 20);
  EXPECT_OK(client.Pull("w0"));
  // Stored variables are loaded even if they exceed the limit for new ones.
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_EQ(Client().Describe()->variables.size(), static_cast<size_t>(variables));
}

TEST_F(MemoryTest, CopiesOfGradientsShareTheBudget) {
  TestClient client = Joined(0);
  wire::VariableSpec clipped = DenseSpec("clipped", {1 << 19}, WireOptimizer("sgd", 1));
  clipped.optimizer.clipnorm = 1;
  ASSERT_OK(client.Create({clipped, DenseSpec("rows", {2, 1 << 19}, WireOptimizer("sgd", 1))}));
  const wire::PushItem items[] = {
      WholeItem("clipped", std::vector<float>(1 << 19, 1)),
      IdItem("rows", wire::Selection::ROWS, {1, 1}, std::vector<float>(1 << 20, 1))};
  for (const wire::PushItem& item : items) {
    wire::PushRequest push = client.NextRequest();
    push.items.push_back(item);
    const int64_t used = Used();
    const int64_t all_but_a_mebibyte = (15 << 20) - used;
    ASSERT_OK(AcquireMessage(all_but_a_mebibyte));
    const absl::Status refused = client.Send(push).status();
    EXPECT_THAT(refused,
                StatusIs(StatusCode::kResourceExhausted, HasSubstr("copies of gradients needs")));
    EXPECT_EQ(ReasonOf(refused), wire::ErrorReason::MEMORY_BUDGET);
    ReleaseMessage(all_but_a_mebibyte);
    EXPECT_THAT(*client.PullRows(item.variable, {1}), Each(0.0F));
    EXPECT_OK(client.Send(push));
    EXPECT_THAT(*client.PullRows(item.variable, {1}), Each(Lt(0.0F)));
    EXPECT_EQ(Used(), used);
  }
}

TEST_F(MemoryTest, ADirectoryThatNoLongerFitsIsRejectedByName) {
  options_.memory_budget_bytes = 64 << 20;
  ASSERT_NO_FATAL_FAILURE(Restart());
  ASSERT_OK(Client().Create({DenseSpec("w", {4 << 20}, WireOptimizer("sgd", 1))}));
  ASSERT_NO_FATAL_FAILURE(Stop());
  options_.memory_budget_bytes = 16 << 20;
  EXPECT_THAT(OpenStatus(), StatusIs(StatusCode::kResourceExhausted,
                                     HasSubstr(absl::StrCat("open ", options_.directory))));
}

TEST_F(MemoryTest, ABudgetBelowTheNeedsOfTheStoreIsRejected) {
  options_.memory_budget_bytes = 1 << 20;
  options_.directory = folder_.Join("other");
  EXPECT_THAT(OpenStatus(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is too small")));
}

}  // namespace
}  // namespace cairn
