// The wait board lists which calls wait, for what and since when, and drops a call when its wait
// ends.
#include "ps_server/base/wait_board.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/deadline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/base/memory_budget.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class WaitBoardTest : public ::testing::Test {
 protected:
  std::vector<wire::WaitingCall> List(absl::string_view job) {
    std::vector<wire::WaitingCall> waiting;
    board_.List(job, waiting);
    return waiting;
  }
  void AwaitCalls(size_t count) {
    const Deadline deadline = Deadline::In(absl::Seconds(20));
    while (List("a").size() != count && !deadline.Expired()) std::this_thread::yield();
    ASSERT_EQ(List("a").size(), count);
  }

  WaitBoard board_;
};

TEST_F(WaitBoardTest, NamesTheCallerWhileItWaits) {
  const WaitBoard::Calling calling("a", 3);
  {
    const WaitBoard::Waiting waiting(&board_, "epoch", "the disk");
    const std::vector<wire::WaitingCall> calls = List("a");
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].worker, 3);
    EXPECT_EQ(calls[0].waits_for, "epoch");
    EXPECT_GE(calls[0].seconds, 0);
    EXPECT_THAT(calls[0].text, StartsWith("worker 3 of job a waits for the disk, since "));
    EXPECT_TRUE(List("b").empty());
  }
  EXPECT_TRUE(List("a").empty());
}

TEST_F(WaitBoardTest, AWaitWithoutACallerIsListedForEveryJob) {
  const WaitBoard::Waiting waiting(&board_, "memory", "memory");
  ASSERT_EQ(List("a").size(), 1u);
  EXPECT_EQ(List("a")[0].worker, -1);
  EXPECT_THAT(List("b")[0].text, StartsWith("a call waits for memory"));
}

TEST_F(WaitBoardTest, NestedCallsKeepTheirCallers) {
  const WaitBoard::Calling outer("a", 1);
  { const WaitBoard::Calling inner("a", 2); }
  const WaitBoard::Waiting waiting(&board_, "order", "itself");
  ASSERT_EQ(List("a").size(), 1u);
  EXPECT_EQ(List("a")[0].worker, 1);
}

TEST_F(WaitBoardTest, AWaitForALockIsListed) {
  absl::Mutex mutex;
  mutex.Lock();
  std::thread waiter([&] {
    const WaitBoard::Calling calling("a", 5);
    const TracedLock lock(&mutex, &board_, "order", "an earlier call of the worker");
  });
  AwaitCalls(1);
  EXPECT_THAT(List("a")[0].text, HasSubstr("worker 5 of job a waits for an earlier call"));
  mutex.Unlock();
  waiter.join();
  EXPECT_TRUE(List("a").empty());
}

TEST_F(WaitBoardTest, AWaitForASharedLockIsListed) {
  absl::Mutex mutex;
  mutex.Lock();
  std::thread waiter([&] {
    const WaitBoard::Calling calling("a", 5);
    const TracedReaderLock lock(&mutex, &board_, "order", "a move");
  });
  AwaitCalls(1);
  EXPECT_THAT(List("a")[0].text, HasSubstr("worker 5 of job a waits for a move"));
  mutex.Unlock();
  waiter.join();
  const TracedReaderLock first(&mutex, &board_, "order", "a move");
  const TracedReaderLock second(&mutex, &board_, "order", "a move");
  EXPECT_TRUE(List("a").empty());
}

TEST_F(WaitBoardTest, AWaitForMemoryIsListedAndItsErrorNamesTheBytesInUse) {
  MemoryBudget budget(100, absl::Seconds(60), &board_);
  ASSERT_OK(budget.Acquire(80, "one"));
  std::thread waiter([&] {
    const WaitBoard::Calling calling("a", 1);
    EXPECT_OK(budget.Acquire(50, "a message"));
  });
  AwaitCalls(1);
  EXPECT_THAT(List("a")[0].text, HasSubstr("worker 1 of job a waits for 50 bytes of memory for a "
                                           "message; 80 of 100 are in use"));
  budget.Release(80);
  waiter.join();
  MemoryBudget short_wait(100, absl::Milliseconds(1), &board_);
  ASSERT_OK(short_wait.Acquire(80, "one"));
  EXPECT_THAT(short_wait.Acquire(50, "a message"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("a message")));
}

}  // namespace
}  // namespace cairn
