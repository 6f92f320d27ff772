// Each piece of work is done once: by idle helpers if there are any, otherwise by the calling
// thread.
#include "storage/helper_pool.h"

#include <algorithm>
#include <atomic>
#include <new>
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

TEST(HelperPool, EveryPieceIsDoneOnceBeforeRunReturnsDespiteConcurrentCalls) {
  for (const size_t helpers : {0u, 1u, 3u}) {
    HelperPool side(helpers);
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

TEST(HelperPool, AHelperTakesAPieceWhileAnotherRuns) {
  HelperPool side(1);
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

TEST(HelperPool, WithoutHelpersTheCallerDoesAllPieces) {
  HelperPool side(0);
  std::set<std::thread::id> met;
  side.Run(5, [&](size_t) { met.insert(std::this_thread::get_id()); });
  EXPECT_EQ(met, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(HelperPool, PiecesAddedOneByOneAreDoneOnceBeforeFinishReturns) {
  for (const size_t helpers : {0u, 1u, 3u}) {
    HelperPool side(helpers);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (size_t pieces = 0; pieces < 100; ++pieces) {
          std::vector<int> done(2 * pieces);
          HelperPool::Job job(side, [&](size_t piece) { ++done[piece]; });
          for (size_t i = 0; i < pieces; ++i) job.Add(1);
          job.Finish();
          ASSERT_EQ(std::count(done.begin(), done.end(), 1), static_cast<int64_t>(pieces));
          job.Add(pieces);
          job.Finish();
          ASSERT_THAT(done, Each(1));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(HelperPool, AHelperTakesAPieceWhileTheOwnerDoesOtherWork) {
  HelperPool side(1);
  StopFlag taken;
  HelperPool::Job job(side, [&](size_t) { taken.Stop(); });
  job.Add(1);
  EXPECT_TRUE(taken.WaitFor(absl::Seconds(60)));
  job.Finish();
}

// The caller can handle that there is no memory; a helper would end the process.
TEST(HelperPool, AnExceptionOnAHelperIsThrownToTheOwner) {
  HelperPool side(1);
  StopFlag taken;
  {
    HelperPool::Job job(side, [&](size_t) {
      taken.Stop();
      throw std::bad_alloc();
    });
    job.Add(1);
    EXPECT_TRUE(taken.WaitFor(absl::Seconds(60)));
    EXPECT_THROW(job.Finish(), std::bad_alloc);
    job.Finish();  // nothing is left
  }
  std::vector<int> done(2);
  side.Run(2, [&](size_t piece) { ++done[piece]; });
  EXPECT_THAT(done, Each(1));
}

TEST(HelperPool, AJobThatEndsEarlyWaitsForBegunPiecesAndDropsTheRest) {
  for (const size_t helpers : {0u, 1u}) {
    HelperPool side(helpers);
    StopFlag begun, ending;
    std::atomic<size_t> done = 0;
    {
      HelperPool::Job job(side, [&](size_t) {
        begun.Stop();
        EXPECT_TRUE(ending.WaitFor(absl::Seconds(60)));
        ++done;
      });
      job.Add(1);
      EXPECT_TRUE(helpers == 0 || begun.WaitFor(absl::Seconds(60)));
      job.Add(1000000);
      ending.Stop();
    }
    const size_t at_end = done;
    EXPECT_GE(at_end, helpers);
    EXPECT_LT(at_end, 1000000u);
    side.Run(2, [](size_t) {});
    EXPECT_EQ(done, at_end);
  }
}

}  // namespace
}  // namespace cairn
