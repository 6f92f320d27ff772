// Threads that share work: one that fails ends alone.
#include "common/run_in_threads.h"

#include <atomic>
#include <new>
#include <thread>

#include "common/deadline.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

TEST(RunInThreads, RunsInEveryThreadAndReturnsAtTheEnd) {
  for (const int threads : {0, 1, 5}) {
    std::atomic<int> runs = 0;
    RunInThreads(static_cast<size_t>(threads), [&] { ++runs; });
    EXPECT_EQ(runs, threads == 0 ? 1 : threads);
  }
}

TEST(RunInThreads, OthersGoOnWithoutAThreadThatLacksMemory) {
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<int> items = 0, refused = 0;
  RunInThreads(4, [&] {
    if (std::this_thread::get_id() != here) {
      ++refused;
      throw std::bad_alloc();
    }
    const Deadline deadline = Deadline::In(absl::Seconds(20));
    while (refused < 3 && !deadline.Expired()) std::this_thread::yield();
    EXPECT_EQ(refused, 3);
    items = 10;
  });
  EXPECT_EQ(items, 10);
}

// The other threads must be joined before the exception leaves.
TEST(RunInThreads, AnErrorOfTheCallerIsThrownWhenTheOthersHaveEnded) {
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<int> ended = 0;
  EXPECT_THROW(RunInThreads(3,
                            [&] {
                              if (std::this_thread::get_id() == here) throw std::bad_alloc();
                              ++ended;
                            }),
               std::bad_alloc);
  EXPECT_EQ(ended, 2);
}

// A call without a result must not look like one that succeeded.
TEST(CallAtOnce, ACallThatLacksMemoryFailsAlone) {
  const std::vector<absl::Status> results = CallAtOnce(4, [](size_t i) {
    if (i == 1) throw std::bad_alloc();
    return i == 2 ? absl::NotFoundError("two") : absl::OkStatus();
  });
  ASSERT_EQ(results.size(), 4U);
  EXPECT_OK(results[0]);
  EXPECT_EQ(results[1].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(results[2].code(), absl::StatusCode::kNotFound);
  EXPECT_OK(results[3]);
}

}  // namespace
}  // namespace cairn
