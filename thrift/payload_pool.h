// Memory of payloads that is used again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "thrift/limits.h"

namespace cairn {

// Blocks of one process, and those that payloads have freed: malloc takes longer for blocks of some
// KiB than the payload's bytes take to be copied, and fresh pages cost a page fault each. A freed
// block is kept while the kept ones together have at most the limit, at first kPooledPayloadBytes.
// Thread safety: every method may be called from several threads at once.
class PayloadPool {
 public:
  struct Block {
    std::byte* memory;
    size_t bytes;
  };

  // The pool of this process.
  static PayloadPool& Get();

  // A block of at least `bytes`, and at most an eighth more, not initialized; `bytes` is at least
  // kMinBytes. Throws std::bad_alloc.
  static constexpr size_t kMinBytes = 1024;
  Block Take(size_t bytes);
  void Return(Block block) noexcept;
  // Raises the limit by so many bytes; a negative number lowers it.
  void RaiseLimit(int64_t bytes);

 private:
  // Sizes are multiples of an eighth of the power of two below them.
  static constexpr size_t kSteps = 8;
  static constexpr size_t kPowers = 54;  // from kMinBytes to 2^64
  // Kept blocks of one size: a stack. Each block begins with the address of the next.
  struct Stack {
    std::byte* top = nullptr;
    size_t count = 0;
    uint64_t last_take = 0;  // by `takes_`
  };

  static size_t RoundUp(size_t bytes);
  static size_t IndexOf(size_t bytes);
  static void Free(Block block) noexcept;
  std::byte* Pop(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns kept blocks to the system until they have at most the limit: those of the size that was
  // not taken for longest. Otherwise sizes that are no longer used would keep the place of others.
  void FreeSurplus() noexcept;
  // One such block; its memory is null if there is none.
  Block TakeSurplus();

  absl::Mutex mutex_;
  std::array<Stack, kSteps * kPowers> stacks_ ABSL_GUARDED_BY(mutex_);
  uint64_t takes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t limit_ ABSL_GUARDED_BY(mutex_) = kPooledPayloadBytes;
};

}  // namespace cairn
