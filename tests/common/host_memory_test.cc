// Large HostVectors use page-locked memory once there is a source of it, and reuse it.
#include "common/host_memory.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

constexpr size_t kLarge = size_t{1} << 20;

// The blocks that the source has given out and not had back.
struct Source {
  std::map<const void*, size_t> blocks;  // bytes
  int allocations = 0;
  bool exhausted = false;
  std::function<void()> wait;
};
Source& source() {
  static Source source;
  return source;
}

// One process has one source. Each test begins and ends without vectors.
class HostMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const HostVector<float> before(kLarge);
    early = &before;
    SetHostMemorySource({.allocate = [](size_t bytes) -> void* {
                           if (source().exhausted) return nullptr;
                           const std::function<void()> wait = source().wait;
                           if (wait != nullptr) wait();
                           ++source().allocations;
                           void* const block = std::malloc(bytes);
                           source().blocks[block] = bytes;
                           return block;
                         },
                         .free =
                             [](void* memory) {
                               EXPECT_EQ(source().blocks.erase(memory), 1u);
                               std::free(memory);
                             }});
    // Only the first source counts.
    SetHostMemorySource({.allocate = [](size_t) -> void* { std::abort(); }, .free = nullptr});
  }

  static const HostVector<float>* early;
};
const HostVector<float>* HostMemory::early = nullptr;

TEST_F(HostMemory, LargeVectorsArePageLocked) {
  const HostVector<float> large(kLarge), small(8);
  EXPECT_TRUE(IsPageLocked(large.data()));
  EXPECT_TRUE(source().blocks.contains(large.data()));
  EXPECT_FALSE(IsPageLocked(small.data()));
  EXPECT_FALSE(IsPageLocked(early->data()));
  EXPECT_FALSE(IsPageLocked(large.data() + 1));
}

TEST_F(HostMemory, MovesAndSwapsKeepTheBlock) {
  HostVector<float> a(kLarge, 1.0f), b(2 * kLarge, 2.0f), c = *early;
  const float* const memory = a.data();
  std::swap(a, b);
  HostVector<float> moved = std::move(b);
  EXPECT_EQ(moved.data(), memory);
  EXPECT_TRUE(IsPageLocked(moved.data()));
  EXPECT_EQ(a[kLarge], 2.0f);
  EXPECT_TRUE(IsPageLocked(c.data()));
}

TEST_F(HostMemory, FreeBlocksAreReusedIfTheyAreNotMuchTooLarge) {
  { const HostVector<float> first(kLarge); }
  const int before = source().allocations;
  for (int i = 0; i < 10; ++i) const HostVector<float> again(kLarge - 7);
  EXPECT_EQ(source().allocations, before);
  const HostVector<float> quarter(kLarge / 4);
  EXPECT_EQ(source().allocations, before + 1);
}

TEST_F(HostMemory, AVectorThatGrowsDoesNotKeepAllItsBlocks) {
  HostVector<float> growing;
  for (size_t i = 0; i < 4 * kLarge; ++i) growing.push_back(1);
  size_t bytes = 0;
  for (const auto& [block, size] : source().blocks) bytes += size;
  // The block in use and at most as much again that is free.
  EXPECT_LE(bytes, 2 * growing.capacity() * sizeof(float));
  EXPECT_TRUE(IsPageLocked(growing.data()));
}

TEST_F(HostMemory, WithoutPageLockedMemoryVectorsUseOrdinaryMemory) {
  source().exhausted = true;
  {
    HostVector<float> vector(64 * kLarge, 1.0f);
    EXPECT_FALSE(IsPageLocked(vector.data()));
    EXPECT_EQ(vector.back(), 1.0f);
  }
  source().exhausted = false;
}

TEST_F(HostMemory, DuringAPauseNothingIsPageLockedButFreeBlocksAreUsed) {
  { const HostVector<float> first(kLarge); }
  const int before = source().allocations;
  {
    const HostMemoryPause pause, nested;
    const HostVector<float> free_block(kLarge), other(kLarge * 32);
    EXPECT_TRUE(IsPageLocked(free_block.data()));
    EXPECT_FALSE(IsPageLocked(other.data()));
  }
  EXPECT_EQ(source().allocations, before);
  EXPECT_TRUE(IsPageLocked(HostVector<float>(kLarge * 32).data()));
}

// A vector of a thread of its own, whose page locking waits for the test. No free block may have
// its size.
class WaitingVector {
 public:
  explicit WaitingVector(size_t floats) {
    source().wait = [this] {
      begun_.Notify();
      end_.WaitForNotification();
      ended_ = true;
    };
    thread_ = std::thread([floats] { const HostVector<float> vector(floats); });
    begun_.WaitForNotification();
    source().wait = nullptr;
  }
  ~WaitingVector() {
    if (!end_.HasBeenNotified()) end_.Notify();
    thread_.join();
  }
  void End() { end_.Notify(); }
  bool ended() const { return ended_; }

 private:
  absl::Notification begun_, end_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

TEST_F(HostMemory, APauseBeginsWhenNoThreadPageLocks) {
  WaitingVector vector(2 * kLarge);
  std::thread ends([&vector] { vector.End(); });
  const HostMemoryPause pause;
  EXPECT_TRUE(vector.ended());
  ends.join();
}

// The device does not answer the source.
TEST_F(HostMemory, OneVectorThatWaitsForTheSourceHoldsUpNoOther) {
  const HostVector<float> used(4 * kLarge);
  { const HostVector<float> first(kLarge); }
  const int before = source().allocations;
  const WaitingVector waiting(3 * kLarge);
  const HostVector<float> free_block(kLarge);
  EXPECT_TRUE(IsPageLocked(free_block.data()));
  EXPECT_EQ(source().allocations, before);
}

// The last test: nothing is page-locked afterwards.
TEST_F(HostMemory, WhenADeviceHangsNothingIsPageLockedAndFreedBlocksAreNotUsed) {
  { const HostVector<float> first(kLarge); }
  HostVector<float> used(kLarge);
  const float* const block = used.data();
  const WaitingVector waiting(7 * kLarge);
  EndPageLocking();
  const HostMemoryPause pause;  // waits for nothing
  EXPECT_TRUE(IsPageLocked(block));
  used = HostVector<float>();
  const HostVector<float> other(kLarge);
  EXPECT_FALSE(IsPageLocked(other.data()));
  EXPECT_NE(other.data(), block);
}

}  // namespace
}  // namespace cairn
