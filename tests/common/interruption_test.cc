// An interrupted thread's deadlines count as expired, at once and in a wait; other threads' do not.
#include "common/interruption.h"

#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

bool CountAndStop(void* count) { return ++*static_cast<int*>(count) >= 2; }
bool Never(void* count) {
  ++*static_cast<int*>(count);
  return false;
}

TEST(Interruption, EndsAWait) {
  int calls = 0;
  StopFlag flag;
  const absl::Duration begin = MonotonicNow();
  {
    const Interruption interruption(CountAndStop, &calls);
    EXPECT_FALSE(flag.WaitFor(absl::Minutes(5)));
    EXPECT_TRUE(interruption.interrupted());
    EXPECT_TRUE(Deadline::In(absl::Hours(1)).Expired());
    std::thread([] { EXPECT_FALSE(Deadline::In(absl::Hours(1)).Expired()); }).join();
  }
  EXPECT_EQ(calls, 2);
  EXPECT_GE(MonotonicNow() - begin, Interruption::kInterval);
  EXPECT_LT(MonotonicNow() - begin, absl::Minutes(1));
  EXPECT_FALSE(Deadline::In(absl::Hours(1)).Expired());
}

TEST(Interruption, IsNotAskedInShortCalls) {
  int calls = 0;
  const Interruption interruption(CountAndStop, &calls);
  EXPECT_FALSE(Deadline::In(absl::Hours(1)).Expired());
  EXPECT_EQ(calls, 0);
}

TEST(Interruption, CheckNowDoesNotWaitForTheInterval) {
  int calls = 0;
  Interruption::CheckNow();
  const Interruption interruption(CountAndStop, &calls);
  for (const int expected : {1, 2, 2}) {  // not again once the thread is interrupted
    Interruption::CheckNow();
    EXPECT_EQ(calls, expected);
  }
  EXPECT_TRUE(Deadline::In(absl::Hours(1)).Expired());
}

// As a signal handler that calls the library: it waits in a scope of its own.
TEST(Interruption, NothingInterruptsTheCheck) {
  static int calls = 0;
  constexpr Interruption::Requested kWaits = [](void*) {
    ++calls;
    for (int i = 0; i < 2; ++i) {
      const Interruption inner([](void*) { return ++calls > 0; }, nullptr);
      const absl::Duration begin = MonotonicNow();
      StopFlag().WaitFor(3 * Interruption::kInterval);
      EXPECT_GE(MonotonicNow() - begin, 3 * Interruption::kInterval);
      EXPECT_FALSE(inner.interrupted());
    }
    return true;
  };
  const Interruption outer(kWaits, nullptr);
  StopFlag().WaitFor(absl::Minutes(5));
  EXPECT_TRUE(outer.interrupted());
  EXPECT_EQ(calls, 1);
}

// As a signal handler that makes the call that the thread is in the middle of.
TEST(Interruption, TheCheckFindsTheMutexOfTheWaitFree) {
  static absl::Mutex mutex;
  static int calls = 0;
  constexpr Interruption::Requested kLocks = [](void*) {
    ++calls;
    const bool is_free = mutex.TryLock();
    EXPECT_TRUE(is_free);
    if (is_free) mutex.Unlock();
    return true;
  };
  const Interruption interruption(kLocks, nullptr);
  MonotonicCondVar never;
  const Deadline deadline = Deadline::In(absl::Minutes(5));
  const Deadline late = Deadline::In(2 * Interruption::kInterval);
  absl::MutexLock lock(&mutex);
  // Busy beyond the interval, with the lock: a check of a deadline alone calls nothing.
  while (!late.Expired()) std::this_thread::yield();
  EXPECT_FALSE(deadline.Expired());
  EXPECT_EQ(calls, 0);
  while (!deadline.Expired()) never.WaitUntil(&mutex, deadline);
  EXPECT_EQ(calls, 1);
}

TEST(Interruption, AnInnerScopeHidesTheOuterOne) {
  int outer_calls = 0, inner_calls = 0;
  const Interruption outer(CountAndStop, &outer_calls);
  {
    const Interruption inner(Never, &inner_calls);
    StopFlag().WaitFor(3 * Interruption::kInterval);
    EXPECT_FALSE(inner.interrupted());
  }
  {
    const Interruption none(nullptr, nullptr);
    StopFlag().WaitFor(3 * Interruption::kInterval);
    EXPECT_EQ(Interruption::LongestWait(), absl::InfiniteDuration());
  }
  EXPECT_GT(inner_calls, 0);
  EXPECT_EQ(outer_calls, 0);
  EXPECT_EQ(Interruption::LongestWait(), Interruption::kInterval);
}

}  // namespace
}  // namespace cairn
