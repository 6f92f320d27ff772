#include "common/host_memory.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"

namespace cairn {
namespace {

// A device copies smaller blocks together with others, from memory of its own.
constexpr size_t kLargeBytes = size_t{64} << 10;

// A call of the source takes milliseconds, or waits for a device that hangs.
constexpr absl::Duration kLongestCall = absl::Minutes(2);

// Page-locked blocks, in use and free. Never destroyed: the device's runtime may end before the
// last vector. There are tens of them, a few for each variable of a step.
class PageLockedBlocks {
 public:
  static PageLockedBlocks& Get() {
    static auto* const blocks = new PageLockedBlocks;
    return *blocks;
  }

  void SetSource(HostMemorySource source) {
    absl::MutexLock lock(&mutex_);
    if (source_.allocate == nullptr) source_ = source;
    has_source_.store(true, std::memory_order_release);
  }
  // Without a source no block exists, and no call needs the lock.
  bool has_source() const { return has_source_.load(std::memory_order_acquire); }

  // Null: there is no block, and none to be had.
  void* Allocate(size_t bytes) {
    std::vector<Block> surplus;
    HostMemorySource source;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return nullptr;
      if (Block* const block = FreeBlock(bytes); block != nullptr) {
        block->used = true;
        return block->memory;
      }
      if (pauses_ > 0) return nullptr;
      blocks_.reserve(blocks_.size() + static_cast<size_t>(calling_) + 1);
      surplus = TakeSurplus();
      source = source_;
      ++calling_;
    }
    // Without the lock, because a device that hangs would keep it for ever.
    for (const Block& block : surplus) source.free(block.memory);
    void* const memory = source.allocate(bytes);
    absl::MutexLock lock(&mutex_);
    if (memory != nullptr) blocks_.push_back({memory, bytes, true});
    --calling_;
    changed_.SignalAll();
    return memory;
  }

  // False: `memory` is no block.
  bool Free(void* memory) {
    absl::MutexLock lock(&mutex_);
    for (Block& block : blocks_) {
      if (block.memory != memory) continue;
      block.used = false;
      return true;
    }
    return false;
  }

  bool Has(const void* memory) {
    absl::MutexLock lock(&mutex_);
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [memory](const Block& block) { return block.memory == memory; });
  }

  void Pause() {
    absl::MutexLock lock(&mutex_);
    ++pauses_;
    const Deadline deadline = Deadline::In(kLongestCall);
    while (calling_ > 0 && !ended_ && !deadline.Expired()) changed_.WaitUntil(&mutex_, deadline);
  }
  void EndPause() {
    absl::MutexLock lock(&mutex_);
    --pauses_;
  }

  void End() {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }

 private:
  struct Block {
    void* memory = nullptr;
    size_t bytes = 0;
    bool used = false;
  };

  // The smallest free block that is large enough, but not twice as large as needed.
  Block* FreeBlock(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Block* best = nullptr;
    for (Block& block : blocks_) {
      if (block.used || block.bytes < bytes || block.bytes / 2 > bytes) continue;
      if (best == nullptr || block.bytes < best->bytes) best = &block;
    }
    return best;
  }

  // Removes and returns the free blocks once they are more than those in use, as after a vector has
  // grown.
  std::vector<Block> TakeSurplus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    size_t used = 0, free = 0;
    for (const Block& block : blocks_) (block.used ? used : free) += block.bytes;
    if (free <= used) return {};
    const auto kept = std::partition(blocks_.begin(), blocks_.end(),
                                     [](const Block& block) { return block.used; });
    std::vector<Block> surplus(kept, blocks_.end());
    blocks_.erase(kept, blocks_.end());
    return surplus;
  }

  std::atomic<bool> has_source_ = false;
  absl::Mutex mutex_;
  HostMemorySource source_ ABSL_GUARDED_BY(mutex_);
  int pauses_ ABSL_GUARDED_BY(mutex_) = 0;
  int calling_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that call the source
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar changed_;
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void SetHostMemorySource(HostMemorySource source) { PageLockedBlocks::Get().SetSource(source); }

bool IsPageLocked(const void* memory) {
  PageLockedBlocks& blocks = PageLockedBlocks::Get();
  return blocks.has_source() && blocks.Has(memory);
}

HostMemoryPause::HostMemoryPause() { PageLockedBlocks::Get().Pause(); }
HostMemoryPause::~HostMemoryPause() { PageLockedBlocks::Get().EndPause(); }

void EndPageLocking() { PageLockedBlocks::Get().End(); }

void* host_memory_internal::Allocate(size_t bytes) {
  if (bytes > kLargeBytes && PageLockedBlocks::Get().has_source()) {
    void* const memory = PageLockedBlocks::Get().Allocate(bytes);
    if (memory != nullptr) return memory;
  }
  return ::operator new(bytes);
}

void host_memory_internal::Free(void* memory, size_t bytes) {
  if (bytes > kLargeBytes && PageLockedBlocks::Get().has_source() &&
      PageLockedBlocks::Get().Free(memory)) {
    return;
  }
  ::operator delete(memory);
}

}  // namespace cairn
