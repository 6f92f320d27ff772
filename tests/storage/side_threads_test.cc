// Pieces of work are done once each, by whoever has time: helpers where there are some, and without
// any by the one who asks.
#include "storage/side_threads.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::Each;

TEST(SideThreads, EveryPieceIsDoneOnceBeforeRunReturnsWhoeverElseAsks) {
  for (const size_t helpers : {0u, 1u, 3u}) {
    SideThreads side(helpers);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (size_t pieces = 0; pieces < 300; ++pieces) {
          std::vector<int> done(pieces);
          side.Run(pieces, [&](size_t piece) { ++done[piece]; });
          ASSERT_THAT(done, Each(1));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(SideThreads, AHelperTakesAPieceWhileAnotherOneIsNotDone) {
  SideThreads side(1);
  absl::Mutex mutex;
  MonotonicCondVar changed;
  std::set<std::thread::id> met;
  side.Run(2, [&](size_t) {
    const Deadline deadline = Deadline::In(absl::Seconds(60));
    absl::MutexLock lock(&mutex);
    met.insert(std::this_thread::get_id());
    changed.SignalAll();
    while (met.size() < 2 && !deadline.Expired()) changed.WaitUntil(&mutex, deadline);
  });
  EXPECT_EQ(met.size(), 2u);
}

TEST(SideThreads, WithoutHelpersTheOneWhoAsksDoesItAll) {
  SideThreads side(0);
  std::set<std::thread::id> met;
  side.Run(5, [&](size_t) { met.insert(std::this_thread::get_id()); });
  EXPECT_EQ(met, std::set<std::thread::id>{std::this_thread::get_id()});
}

}  // namespace
}  // namespace cairn
