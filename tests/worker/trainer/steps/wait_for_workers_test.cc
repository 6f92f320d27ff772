// Workers see which others have finished and which are alive, and wait for the live ones no longer
// than necessary.
#include "worker/trainer/steps/wait_for_workers.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "tests/support/refusing_threads.h"
#include "tests/worker/trainer/engines.h"
#include "tests/worker/trainer/recording_client.h"
#include "worker/trainer/resume/job_restore.h"
#include "worker/trainer/steps/heartbeat_thread.h"

namespace cairn::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kTimeout = absl::Seconds(20);

class Meeting : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int32_t worker = 0; worker < 3; ++worker) {
      clients_.push_back(engines_.Connect("j", worker));
      ASSERT_NE(clients_.back(), nullptr);
      ASSERT_OK(clients_.back()->Create({RosterSpec()}, Deadline::In(kTimeout)));
    }
  }

  void Push(int32_t worker, int64_t finished_runs) {
    RosterGradient gradient;
    ASSERT_OK(clients_[static_cast<size_t>(worker)]->Push(
        {entries_[worker].Source(MonotonicNow(), finished_runs, &gradient)}, "p",
        Deadline::In(kTimeout)));
  }

  absl::StatusOr<Others> Wait(absl::Duration patience) {
    return WaitForOthers(*clients_[0], 0, 3, 1, entries_[0], "p", patience, kTimeout, stop_);
  }

  Engines engines_{2};
  std::vector<std::unique_ptr<PsClient>> clients_;
  RosterEntry entries_[3] = {RosterEntry(0), RosterEntry(1), RosterEntry(2)};
  StopRequested stop_ = [] { return false; };
};

// The others would take it for lost.
TEST_F(Meeting, AWorkerWithoutAThreadForItsHeartbeatsDoesNotTrain) {
  const NoThreads none;
  EXPECT_THAT(HeartbeatThread::Start(std::move(clients_[1]), 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("heartbeats"), HasSubstr("thread"))));
}

TEST_F(Meeting, RosterCountsRunsAndBeatsNeverFallToZero) {
  for (int i = 0; i < 1500; ++i) {
    Push(1, 0);
    const auto rows = ReadRoster(*clients_[0], 3, Deadline::In(kTimeout));
    ASSERT_OK(rows);
    ASSERT_GT((*rows)[1].beats, 0) << i;
  }
  Push(1, 1);
  Push(1, 1);
  const auto rows = ReadRoster(*clients_[2], 3, Deadline::In(kTimeout));
  ASSERT_OK(rows);
  EXPECT_EQ((*rows)[0].beats, 0);
  EXPECT_EQ((*rows)[1].runs_finished, 2);
  EXPECT_LT((*rows)[1].beats, 1024);
}

TEST_F(Meeting, WaitsUntilTheOthersHaveFinished) {
  Push(1, 1);
  Push(2, 0);
  std::atomic<bool> finished{false};
  stop_ = [&, polls = 0]() mutable {
    if (++polls == 3) {  // after two polls with worker 2 unfinished
      finished = true;
      Push(2, 1);
    }
    return false;
  };
  const absl::StatusOr<Others> others = Wait(absl::Seconds(10));
  ASSERT_OK(others);
  EXPECT_TRUE(finished);
  EXPECT_THAT(others->finished, ElementsAre(1, 2));
  EXPECT_THAT(others->silent, IsEmpty());
}

TEST_F(Meeting, AWorkerNeverSeenIsGoneWhenPatienceEnds) {
  Push(1, 1);
  const absl::StatusOr<Others> others = Wait(absl::Milliseconds(200));
  ASSERT_OK(others);
  EXPECT_THAT(others->finished, ElementsAre(1));
  EXPECT_THAT(others->silent, ElementsAre(2));
  EXPECT_EQ(WorkersText(others->silent), "worker 2");
}

// Its second answer is late. Worker 1 has finished; worker 2 has, in the third answer.
class LateRoster : public RecordingClient {
 public:
  explicit LateRoster(absl::Duration delay) : delay_(delay) {}
  absl::Status Pull(absl::Span<const PullTarget> targets, Deadline) override {
    if (++answers_ == 2) absl::Notification().WaitForNotificationWithTimeout(delay_);
    const float finished = answers_ < 3 ? 0 : 1;
    const float rows[3][2] = {{0, 1}, {1, 1}, {finished, finished}};
    std::memcpy(targets[0].out.data(), rows, sizeof rows);
    return absl::OkStatus();
  }

 private:
  const absl::Duration delay_;
  int answers_ = 0;
};

TEST_F(Meeting, TimeInWhichTheServersDoNotAnswerIsNobodysSilence) {
  constexpr absl::Duration kPatience = absl::Seconds(3);
  LateRoster client(kPatience + absl::Seconds(1));
  const absl::StatusOr<Others> others =
      WaitForOthers(client, 0, 3, 1, entries_[0], "p", kPatience, kTimeout, stop_);
  ASSERT_OK(others);
  EXPECT_THAT(others->silent, IsEmpty());
  EXPECT_THAT(others->finished, ElementsAre(1, 2));
}

TEST_F(Meeting, AStopEndsTheWait) {
  stop_ = [] { return true; };
  EXPECT_THAT(Wait(absl::Seconds(10)), StatusIs(absl::StatusCode::kCancelled, ::testing::_));
}

TEST_F(Meeting, AFreshStartIsSeenByBeatsThatMove) {
  Push(0, 0);  // of an earlier start: does not advance
  const auto onlooker = engines_.Connect("j", -1);
  EXPECT_THAT(WaitForFreshStart(*onlooker, absl::Milliseconds(300), false, stop_),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("--fresh")));
  stop_ = [&, polls = 0]() mutable {
    if (++polls % 3 == 0) Push(0, 0);
    return false;
  };
  EXPECT_OK(WaitForFreshStart(*onlooker, absl::Seconds(10), false, stop_));
}

TEST_F(Meeting, AFreshStartThatIsNotSeenIsNotBlamedOnTheServers) {
  const auto onlooker = engines_.Connect("j", -1);
  constexpr absl::Duration kPatience = absl::Milliseconds(300);
  stop_ = [polls = 0, kPatience]() mutable {
    // The wait's deadline has passed when the second call begins.
    if (++polls == 2) absl::Notification().WaitForNotificationWithTimeout(kPatience);
    return false;
  };
  EXPECT_THAT(WaitForFreshStart(*onlooker, kPatience, false, stop_),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("start it with --fresh")));
}

TEST_F(Meeting, AJobThatTheFirstWorkerDoesNotBeginNamesTheFirstWorker) {
  const auto onlooker = engines_.Connect("nobody-begins-it", -1);
  EXPECT_THAT(
      WaitForJob(*onlooker, "nobody-begins-it", /*always=*/true, stop_, absl::Milliseconds(100)),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("the first worker (chief, else worker 0) has neither"),
                     HasSubstr("nobody-begins-it"))));
}

TEST_F(Meeting, AFreshStartIsSeenThroughTheDrop) {
  const auto onlooker = engines_.Connect("j", -1);
  Push(0, 0);
  stop_ = [&, polls = 0]() mutable {
    ++polls;
    if (polls == 2) {
      EXPECT_OK(clients_[0]->DropJob(Deadline::In(kTimeout)));
    }
    if (polls == 4) {
      EXPECT_OK(clients_[0]->Create({RosterSpec()}, Deadline::In(kTimeout)));
    }
    if (polls > 4 && polls % 2 == 0) Push(0, 0);
    EXPECT_LT(polls, 100);
    return false;
  };
  EXPECT_OK(WaitForFreshStart(*onlooker, absl::Seconds(10), false, stop_));
}

}  // namespace
}  // namespace cairn::test
