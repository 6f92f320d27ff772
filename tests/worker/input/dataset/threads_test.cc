// Iterators can be destroyed at any moment, which ends their threads, and do not disturb each
// other.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/interruption.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/refusing_threads.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/input/dataset/elements.h"
#include "worker/input/dataset/dataset.h"

namespace cairn {
namespace {

using test::Drain;
using test::Elements;
using test::NoThreads;
using ::testing::HasSubstr;

int64_t IntOf(const Element& element) { return element[0].values<int64_t>()[0]; }

absl::StatusOr<Element> Triple(Element element) {
  return Element{Tensor::Scalar<int64_t>(3 * IntOf(element))};
}

// Counts running calls, to check that none outlives its iterator.
struct Calls {
  std::atomic<int> under_way{0};
  std::atomic<int> made{0};
};

Dataset Counted(const Dataset& dataset, const std::shared_ptr<Calls>& calls, int32_t threads) {
  return dataset.Map(
      [calls](Element element) -> absl::StatusOr<Element> {
        ++calls->under_way;
        ++calls->made;
        std::this_thread::yield();
        --calls->under_way;
        return element;
      },
      {.num_parallel_calls = threads});
}

TEST(Threads, DestructionAfterAnyNumberOfElementsJoinsAllThreads) {
  for (const bool infinite : {false, true}) {
    auto calls = std::make_shared<Calls>();
    const Dataset range = infinite ? Dataset::Range(10).Repeat() : Dataset::Range(10);
    const Dataset dataset = Counted(Counted(range, calls, 4).Prefetch(3), calls, 3).Prefetch(2);
    for (size_t taken = 0; taken <= 12; ++taken) {
      auto iterator = *dataset.MakeIterator();
      EXPECT_EQ(Drain(iterator.get(), taken).elements.size(),
                infinite ? taken : std::min<size_t>(taken, 10));
      iterator.reset();
      EXPECT_EQ(calls->under_way, 0);
    }
    const int made = calls->made;
    std::this_thread::yield();
    EXPECT_EQ(calls->made, made) << "a thread outlived its iterator";
  }
}

TEST(Threads, DestructionWhileTheBufferIsFullDoesNotWait) {
  auto full = std::make_shared<absl::Notification>();
  const Dataset dataset = Dataset::Range(100)
                              .Map([full](Element element) -> absl::StatusOr<Element> {
                                if (IntOf(element) == 2) full->Notify();
                                return element;
                              })
                              .Prefetch(2);
  auto iterator = *dataset.MakeIterator();
  Element element;
  ASSERT_TRUE(*iterator->Next(&element));
  // Of 2 ready elements and one that the thread holds, none is taken any more: the thread waits for
  // space, now or soon. Whether it has made element 3 depends on when 0 was taken.
  EXPECT_TRUE(full->WaitForNotificationWithTimeout(absl::Seconds(60)));
  iterator.reset();
}

TEST(Threads, DestructionWaitsForTheCallUnderWay) {
  auto entered = std::make_shared<absl::Notification>();
  auto go_on = std::make_shared<absl::Notification>();
  std::atomic<bool> returned = false;
  const Dataset dataset = Dataset::Range(2).Map(
      [&returned, entered, go_on](Element element) -> absl::StatusOr<Element> {
        if (IntOf(element) == 1) {
          entered->Notify();
          go_on->WaitForNotificationWithTimeout(absl::Seconds(60));
          returned = true;
        }
        return element;
      },
      {.num_parallel_calls = 2});
  auto iterator = *dataset.MakeIterator();
  Element element;
  ASSERT_TRUE(*iterator->Next(&element));
  EXPECT_TRUE(entered->WaitForNotificationWithTimeout(absl::Seconds(60)));
  std::thread releases([go_on] { go_on->Notify(); });
  iterator.reset();
  EXPECT_TRUE(returned);
  releases.join();
}

TEST(Threads, AnIteratorThatWasNeverAskedHasNoThread) {
  auto calls = std::make_shared<Calls>();
  { auto iterator = *Counted(Dataset::Range(9), calls, 4).Prefetch(4).MakeIterator(); }
  EXPECT_EQ(calls->made, 0);
}

TEST(Threads, FilesAndErrorsPassThroughThreads) {
  const Dataset broken = Dataset::Range(20).Map(
      [](Element element) -> absl::StatusOr<Element> {
        if (IntOf(element) % 5 == 4) return absl::DataLossError("every fifth");
        return element;
      },
      {.num_parallel_calls = 4});
  auto iterator = *broken.Prefetch(3).MakeIterator();
  Element element;
  for (int64_t i = 0; i < 20; ++i) {
    const absl::StatusOr<bool> more = iterator->Next(&element);
    ASSERT_EQ(more.ok(), i % 5 != 4) << i;
    if (more.ok()) {
      EXPECT_EQ(IntOf(element), i);
    }
  }
  EXPECT_FALSE(*iterator->Next(&element));
}

// The system refuses threads, as a limit of processes does.
TEST(Threads, ARefusedThreadIsAnErrorOfNextAndTheNextCallTriesAgain) {
  for (const Dataset& dataset :
       {Dataset::Range(3).Prefetch(2), Dataset::Range(3).Map(Triple, {.num_parallel_calls = 4})}) {
    auto iterator = *dataset.MakeIterator();
    Element element;
    {
      const NoThreads none;
      EXPECT_THAT(iterator->Next(&element), StatusIs(absl::StatusCode::kResourceExhausted,
                                                     HasSubstr("raise the limit of threads")));
    }
    EXPECT_EQ(Drain(iterator.get()).elements.size(), 3u);
  }
}

TEST(Threads, FewerThreadsThanRequestedDoTheWork) {
  auto iterator =
      *Dataset::Range(100).Map(Triple, {.num_parallel_calls = 4}).Prefetch(2).MakeIterator();
  const NoThreads none(/*succeeding=*/2);
  EXPECT_EQ(Drain(iterator.get()).elements.size(), 100u);
}

TEST(Threads, AnInterruptionEndsTheWaitAndLosesNoElement) {
  auto go_on = std::make_shared<absl::Notification>();
  const Dataset dataset =
      Dataset::Range(2).Map([go_on](Element element) -> absl::StatusOr<Element> {
        go_on->WaitForNotificationWithTimeout(absl::Seconds(60));
        return element;
      });
  auto iterator = *dataset.Prefetch(1).MakeIterator();
  Element element;
  {
    const Interruption interruption([](void*) { return true; }, nullptr);
    EXPECT_THAT(iterator->Next(&element),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("Prefetch")));
  }
  go_on->Notify();
  EXPECT_EQ(Drain(iterator.get()).elements.size(), 2u);
}

// Several threads read passes of one dataset, with shared steps.
TEST(Threads, IteratorsOfOneDatasetRunInThreadsOfTheirOwn) {
  const Dataset dataset = Dataset::Range(200)
                              .Map(Triple, {.num_parallel_calls = 2})
                              .Cache()
                              .Shuffle(50, {.seed = 1, .reshuffle_each_iteration = false})
                              .Batch(7)
                              .Prefetch(2);
  const std::string expected = Elements(dataset);
  std::vector<std::thread> threads;
  std::vector<std::string> got(4);
  for (std::string& one : got) {
    threads.emplace_back([&dataset, &one] { one = Elements(dataset); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : got) EXPECT_EQ(one, expected);
}

TEST(Threads, ACacheIsFilledByAnyOfSeveralThreads) {
  const Dataset dataset = Dataset::Range(100).Map(Triple).Cache();
  const std::string expected = Elements(Dataset::Range(100).Map(Triple));
  std::vector<std::thread> threads;
  std::vector<std::string> got(4);
  for (std::string& one : got) {
    threads.emplace_back([&dataset, &one] { one = Elements(dataset.Repeat(2).Take(100)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : got) EXPECT_EQ(one, expected);
}

}  // namespace
}  // namespace cairn
