// Servers forget pushes that were not durable: every push is still applied exactly once, whichever
// thread notices the restart and whatever interrupts the replay; the retained memory is bounded.
#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/support/addresses.h"
#include "tests/worker/client/fleet.h"
#include "thrift/errors.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two servers, with one variable each.
class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() {
    for (int32_t s = 0; s < 2; ++s) fleet_.fake(s).KeepOnlyWhatIsFlushed();
  }
  void Connect() {
    client_ = fleet_.Connect(options_);
    ASSERT_OK(client_->Create({Dense("v0", {2}, {{0, 2, 0}}), Dense("v1", {2}, {{0, 2, 1}}),
                               Dense("w1", {2}, {{0, 2, 1}})},
                              Soon()));
  }
  absl::Status Push(Deadline deadline = Soon()) {
    return client_->Push({Whole("v0", ones_), Whole("v1", ones_)}, "", deadline);
  }
  std::vector<float> Pull(absl::string_view variable) { return PullWhole(*client_, variable, 2); }

  Fleet fleet_{2, /*remote=*/true};
  ClientOptions options_ = Fleet::Options();
  std::unique_ptr<PsClient> client_;
  const std::vector<float> ones_ = {1, 1};
};

TEST_F(ReplayTest, APushFindsTheRestart) {
  Connect();
  for (int i = 0; i < 5; ++i) ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  ASSERT_OK(Push());
  EXPECT_THAT(Pull("v0"), Each(-6));
  EXPECT_THAT(Pull("v1"), Each(-6));
  EXPECT_THAT(fleet_.fake(1).sequences(), ElementsAre(1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6));
  const ClientCounters counters = client_->counters();
  EXPECT_EQ(counters.replayed_pushes, 5);
  EXPECT_EQ(counters.replayed_bytes, 5 * 8);
  EXPECT_GT(counters.replay_seconds, 0);
  EXPECT_GE(counters.retained_bytes_max, counters.retained_bytes);
}

TEST_F(ReplayTest, APullFindsTheRestartAndSeesWhatWasAcknowledged) {
  Connect();
  for (int i = 0; i < 3; ++i) ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  EXPECT_THAT(Pull("v1"), Each(-3));
  ASSERT_OK(Push());
  EXPECT_THAT(Pull("v1"), Each(-4));
}

// The push of the call is applied, and others may have it: it is acknowledged although the pull
// after it is refused.
TEST_F(ReplayTest, APushWhosePullIsRefusedIsReplayedToo) {
  Connect();
  ASSERT_OK(Push());
  fleet_.fake(1).after = [](absl::string_view method) {
    if (method == "step")
      Refuse(wire::ErrorCode::RESOURCE_EXHAUSTED, wire::ErrorReason::MEMORY_BUDGET,
             "no memory for the reply");
  };
  std::vector<float> values(2);
  const absl::Status refused = client_->PushPull({Whole("v0", ones_), Whole("v1", ones_)}, "",
                                                 {WholeInto("v1", &values)}, Soon());
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("applied"), HasSubstr("no memory for the reply"))));
  EXPECT_EQ(ReasonOf(refused), wire::ErrorReason::MEMORY_BUDGET);
  EXPECT_THAT(Pull("v1"), Each(-2));
  fleet_.fake(1).Crash();
  EXPECT_THAT(Pull("v1"), Each(-2));
  ASSERT_OK(Push());
  EXPECT_THAT(Pull("v0"), Each(-3));
  EXPECT_THAT(Pull("v1"), Each(-3));
}

TEST_F(ReplayTest, AHeartbeatFindsTheRestartOfAServerNobodyCalls) {
  for (int32_t s = 0; s < 2; ++s) fleet_.fake(s).lease_seconds = 0.05;
  Connect();
  for (int i = 0; i < 3; ++i) ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  const Deadline deadline = Soon();
  while (fleet_.fake(1).applied(0) < 3 && !deadline.Expired()) std::this_thread::yield();
  EXPECT_EQ(fleet_.fake(1).applied(0), 3);
}

TEST_F(ReplayTest, LeavingWaitsForWhatARestartTookBack) {
  Connect();
  for (int i = 0; i < 3; ++i) ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  ASSERT_OK(client_->Leave(Soon()));
  EXPECT_EQ(client_->counters().retained_bytes, 0);
  fleet_.fake(1).Crash();
  client_ = fleet_.Connect(Fleet::Options(-1));
  ASSERT_OK(client_->Describe(Soon()));
  EXPECT_THAT(Pull("v1"), Each(-3));
}

TEST_F(ReplayTest, OnlyWhatIsNotDurableIsSentAgain) {
  Connect();
  ASSERT_OK(Push());
  ASSERT_OK(client_->Flush(Soon()));
  EXPECT_EQ(client_->counters().retained_bytes, 0);
  ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  ASSERT_OK(Push());
  EXPECT_EQ(client_->counters().replayed_pushes, 1);
  EXPECT_THAT(Pull("v1"), Each(-3));
}

TEST_F(ReplayTest, BothServersAtOnceAndAgain) {
  Connect();
  for (int round = 1; round <= 5; ++round) {
    ASSERT_OK(Push());
    fleet_.fake(0).Crash();
    fleet_.fake(1).Crash();
    ASSERT_OK(Push());
    EXPECT_THAT(Pull("v0"), Each(-2 * round));
    EXPECT_THAT(Pull("v1"), Each(-2 * round));
  }
}

TEST_F(ReplayTest, APushWithoutAPartHereLeavesNoHole) {
  Connect();
  ASSERT_OK(Push());
  ASSERT_OK(client_->Push({Whole("v0", ones_)}, "", Soon()));
  ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  fleet_.fake(0).Crash();
  EXPECT_THAT(Pull("v1"), Each(-2));
  EXPECT_THAT(Pull("v0"), Each(-3));
}

TEST_F(ReplayTest, AssignsKeepTheirPlaceAmongPushes) {
  Connect();
  ASSERT_OK(Push());
  const std::vector<float> tens = {10, 10};
  ASSERT_OK(client_->Assign({Whole("v1", tens)}, Soon()));
  ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  EXPECT_THAT(Pull("v1"), Each(9));
  EXPECT_THAT(fleet_.fake(1).sequences(), ElementsAre(1, 2, 3, 1, 2, 3));
}

TEST_F(ReplayTest, AServerThatDiesAgainInTheMiddleIsBegunAnew) {
  Connect();
  for (int i = 0; i < 5; ++i) ASSERT_OK(Push());
  // Crashes after the second replayed part; its epoch was written after the first.
  std::atomic<int> parts = 0;
  fleet_.fake(1).after = [&](absl::string_view method) {
    if (method != "push" || ++parts != 2) return;
    fleet_.fake(1).Crash();
  };
  fleet_.fake(1).Crash();
  EXPECT_THAT(Pull("v1"), Each(-5));
  EXPECT_EQ(parts, 2 + 5);
}

// Another thread's replay is in progress and does not end.
TEST_F(ReplayTest, AWaitForAReplayUnderWayEndsAndSaysWhatItWaitedFor) {
  Connect();
  ASSERT_OK(Push());
  const auto begun = std::make_shared<absl::Notification>();
  const auto release = std::make_shared<absl::Notification>();
  fleet_.fake(1).before = [begun, release](absl::string_view method) {
    if (method != "hello" || begun->HasBeenNotified()) return;
    begun->Notify();
    release->WaitForNotificationWithTimeout(absl::Seconds(20));
  };
  fleet_.fake(1).Crash();
  std::thread replays([&] { EXPECT_OK(Push()); });
  ASSERT_TRUE(begun->WaitForNotificationWithTimeout(absl::Seconds(20)));
  std::vector<float> out(2);
  EXPECT_THAT(client_->Pull({WholeInto("v1", &out)}, Deadline::In(absl::Seconds(3))),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps:1 (" + OwnHost() + ":"),
                             HasSubstr("was restarted and is being sent the pushes it does not "
                                       "have since"))));
  release->Notify();
  replays.join();
  EXPECT_THAT(Pull("v1"), Each(-2));
}

TEST_F(ReplayTest, ALostAnswerIsAskedForAgain) {
  Connect();
  for (int i = 0; i < 3; ++i) ASSERT_OK(Push());
  for (int lost = 1; lost <= 4; ++lost) {
    fleet_.fake(1).Crash();
    std::atomic<int> answers = 0;
    fleet_.fake(1).after = [&](absl::string_view method) {
      if ((method == "push" || method == "hello") && ++answers == lost) {
        fleet_.proxy(1).DropReplies(1);
      }
    };
    EXPECT_THAT(Pull("v1"), Each(-3)) << lost;
  }
}

TEST_F(ReplayTest, APushOfWhichTheAnswerWasLostWithTheServerIsSentOnce) {
  Connect();
  ASSERT_OK(Push());
  std::atomic<bool> once = false;
  fleet_.fake(1).after = [&](absl::string_view method) {
    if (method != "push" || once.exchange(true)) return;
    fleet_.fake(1).Crash();  // it has applied the push and sends its answer
  };
  ASSERT_OK(Push());
  EXPECT_THAT(Pull("v1"), Each(-2));
  EXPECT_THAT(Pull("v0"), Each(-2));
}

// Otherwise that server, with rows that moved there since, could lack a push that all servers seem
// to have.
TEST_F(ReplayTest, AServerThatHadAnEarlierStartsPushGetsItBeforeThoseThatLackIt) {
  Connect();
  ASSERT_OK(Push());
  std::atomic<bool> refuses = true, first_has_it = false, second_is_called = false;
  fleet_.fake(1).before = [&](absl::string_view method) {
    if (method != "push") return;
    // So long that the push is given up at once.
    if (refuses) throw ToServerError(BusyError("rows are moving", absl::Hours(1)));
    EXPECT_TRUE(first_has_it);
    second_is_called = true;
  };
  EXPECT_THAT(Push(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rows are moving")));
  refuses = false;
  client_.reset();
  Connect();
  fleet_.fake(0).before = [&](absl::string_view method) {
    const Deadline deadline = Deadline::In(absl::Milliseconds(100));
    while (method == "push" && !second_is_called && !deadline.Expired()) std::this_thread::yield();
  };
  fleet_.fake(0).after = [&](absl::string_view method) { first_has_it = method == "push"; };
  ASSERT_OK(Push());
  EXPECT_THAT(Pull("v0"), Each(-2));
  EXPECT_THAT(Pull("v1"), Each(-2));
  EXPECT_THAT(fleet_.fake(0).sequences(), ElementsAre(1, 2));
  EXPECT_THAT(fleet_.fake(1).sequences(), ElementsAre(1, 2));
}

TEST_F(ReplayTest, WhatIsRefusedInTheMiddleIsNamedAndSentAgainLater) {
  Connect();
  for (int i = 0; i < 3; ++i) ASSERT_OK(Push());
  std::atomic<bool> full = true;
  fleet_.fake(1).before = [&](absl::string_view method) {
    if (method == "push" && full) {
      Refuse(wire::ErrorCode::RESOURCE_EXHAUSTED, wire::ErrorReason::MEMORY_BUDGET,
             "memory is full");
    }
  };
  fleet_.fake(1).Crash();
  std::vector<float> out(2);
  EXPECT_THAT(client_->Pull({WholeInto("v1", &out)}, Soon()),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("restarted without push 1 of worker:0"),
                             HasSubstr("memory is full"))));
  full = false;
  EXPECT_THAT(Pull("v1"), Each(-3));
}

TEST_F(ReplayTest, ARefusedPushIsNotSentAgain) {
  Connect();
  ASSERT_OK(Push());
  std::atomic<bool> refuse = true;
  fleet_.fake(1).before = [&](absl::string_view method) {
    if (method == "push" && refuse) {
      Refuse(wire::ErrorCode::INVALID_ARGUMENT, wire::ErrorReason::NONE, "no");
    }
  };
  EXPECT_TRUE(absl::IsInvalidArgument(Push()));
  refuse = false;
  ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  fleet_.fake(0).Crash();
  EXPECT_THAT(Pull("v1"), Each(-2));
  EXPECT_THAT(Pull("v0"), Each(-3));
}

TEST_F(ReplayTest, ManyThreadsPushAndPullThroughCrashes) {
  Connect();
  constexpr int kThreads = 4, kPushes = 100;
  std::atomic<int> acknowledged = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kPushes; ++i) {
        const float before = static_cast<float>(acknowledged);
        std::vector<float> out(2);
        // Acknowledged pushes are visible, even if the server has forgotten them since.
        ASSERT_OK(client_->PushPull({Whole("v0", ones_), Whole("v1", ones_)}, "",
                                    {WholeInto("v1", &out)}, Soon()));
        const int done = ++acknowledged;
        EXPECT_LE(out[0], -(before + 1));
        // The other threads are in the middle of calls.
        if (done % 8 == 0) fleet_.fake(done / 8 % 2).Crash();
        if (done % 56 == 0) {
          ASSERT_OK(client_->Flush(Soon()));
        }
        ASSERT_OK(client_->Pull({WholeInto("v0", &out)}, Soon()));
        EXPECT_LE(out[0], -(before + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Pull("v0"), Each(-kThreads * kPushes));
  EXPECT_THAT(Pull("v1"), Each(-kThreads * kPushes));
  EXPECT_GT(client_->counters().replayed_pushes, 0);
}

TEST_F(ReplayTest, HalfFullItAsksForAnEarlyEpoch) {
  options_.retained_bytes = 200 << 10;
  Connect();
  for (int i = 0; i < 1000; ++i) ASSERT_OK(Push());
  EXPECT_GT(fleet_.fake(1).calls("flush"), 0);
  EXPECT_LE(client_->counters().retained_bytes_max, options_.retained_bytes);
  fleet_.fake(1).Crash();
  EXPECT_THAT(Pull("v1"), Each(-1000));
}

TEST_F(ReplayTest, FullItWaitsAndSaysForWhom) {
  options_.retained_bytes = 8 << 10;
  Connect();
  const auto release = std::make_shared<absl::Notification>();
  fleet_.fake(1).before = [release](absl::string_view method) {
    if (method == "flush") release->WaitForNotificationWithTimeout(absl::Seconds(20));
  };
  absl::Status status;
  int pushes = 0;
  for (; status.ok() && pushes < 100; ++pushes) status = Push(Deadline::In(absl::Seconds(3)));
  --pushes;
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("have waited since"), HasSubstr("retained_bytes (8192)"),
                             HasSubstr("ps:1"), HasSubstr("not durable there since"))));
  EXPECT_LE(client_->counters().retained_bytes_max, options_.retained_bytes);
  // None of it was sent, so the order is intact.
  release->Notify();
  ASSERT_OK(Push());
  EXPECT_THAT(Pull("v1"), Each(-(pushes + 1)));
}

// The flush has 5 s of its own.
TEST_F(ReplayTest, LeaveGivesUpAnEarlySnapshotThatWouldTakeAllOfItsTime) {
  options_.retained_bytes = 64 << 10;
  Connect();
  const auto asked = std::make_shared<absl::Notification>();
  const auto release = std::make_shared<absl::Notification>();
  fleet_.fake(1).before = [asked, release](absl::string_view method) {
    if (method != "flush") return;
    if (!asked->HasBeenNotified()) asked->Notify();
    release->WaitForNotificationWithTimeout(absl::Seconds(20));
  };
  while (client_->counters().retained_bytes <= options_.retained_bytes / 2) ASSERT_OK(Push());
  ASSERT_TRUE(asked->WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_OK(client_->Leave(Deadline::In(absl::Seconds(4))));
  release->Notify();
}

TEST_F(ReplayTest, OneLargerThanTheBudgetGoesAlone) {
  options_.retained_bytes = 1;
  Connect();
  for (int i = 0; i < 3; ++i) ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  EXPECT_THAT(Pull("v1"), Each(-3));
}

TEST_F(ReplayTest, WithoutABudgetALostPushIsAnError) {
  options_.retained_bytes = 0;
  Connect();
  ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  EXPECT_THAT(Push(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("ps:1"), HasSubstr("push 1 of worker:0"),
                                     HasSubstr("retains none"))));
}

TEST_F(ReplayTest, AFencedStartReplaysNothing) {
  Connect();
  ASSERT_OK(Push());
  const std::unique_ptr<PsClient> first = std::move(client_);
  Connect();
  ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  std::vector<float> out(2);
  EXPECT_EQ(ReasonOf(first->Pull({WholeInto("v1", &out)}, Soon())), wire::ErrorReason::FENCED);
  EXPECT_THAT(Pull("v1"), Each(-2));
}

TEST_F(ReplayTest, AnotherJobBeginsWithNothingKept) {
  Connect();
  ASSERT_OK(Push());
  ASSERT_OK(client_->DropJob(Soon()));
  EXPECT_EQ(client_->counters().retained_bytes, 0);
  ASSERT_OK(
      client_->Create({Dense("v0", {2}, {{0, 2, 0}}), Dense("v1", {2}, {{0, 2, 1}})}, Soon()));
  ASSERT_OK(Push());
  fleet_.fake(1).Crash();
  EXPECT_THAT(Pull("v1"), Each(-1));
}

}  // namespace
}  // namespace cairn::test
