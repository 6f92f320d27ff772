// Waits end by signal or by deadline. tests/faults/clock_test.py tests that the wall clock has no
// effect.
#include "common/monotonic_cond_var.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(MonotonicCondVar, ASignalWakesEveryWaiter) {
  absl::Mutex mutex;
  MonotonicCondVar changed;
  bool ready = false;
  int seen = 0;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      const Deadline deadline = Deadline::In(absl::Seconds(30));
      absl::MutexLock lock(&mutex);
      while (!ready && !deadline.Expired()) changed.WaitUntil(&mutex, deadline);
      seen += ready ? 1 : 0;
    });
  }
  {
    absl::MutexLock lock(&mutex);
    ready = true;
    changed.SignalAll();
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(seen, 4);
}

TEST(MonotonicCondVar, AWaitEndsAtItsDeadlineAndReacquiresTheMutex) {
  absl::Mutex mutex;
  MonotonicCondVar changed;
  const Deadline deadline = Deadline::In(absl::Milliseconds(20));
  absl::MutexLock lock(&mutex);
  while (!deadline.Expired()) changed.WaitUntil(&mutex, deadline);
  mutex.AssertHeld();
}

TEST(StopFlag, EndsAWaitAndStaysStopped) {
  StopFlag stop;
  EXPECT_FALSE(stop.stopped());
  EXPECT_FALSE(stop.WaitFor(absl::Milliseconds(1)));
  std::thread stopper([&] { stop.Stop(); });
  EXPECT_TRUE(stop.WaitFor(absl::Seconds(30)));
  EXPECT_TRUE(stop.WaitFor(absl::InfiniteDuration()));
  stopper.join();
  EXPECT_TRUE(stop.stopped());
}

}  // namespace
}  // namespace cairn
