// Memory for the rows of one table, in chunks of one size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// Chunks are cut from blocks, which go back to the system whole. A large table's blocks ask the
// kernel for huge pages: rows are read in random order, and with pages of 4 KiB nearly each one
// costs a walk of the page tables; filling them costs a fault a page. A small table's do not, since
// a huge page is large beside it. Thread safety: every method may be called from several threads at
// once.
class ChunkPool {
 public:
  explicit ChunkPool(size_t chunk_bytes);
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  size_t chunk_bytes() const { return chunk_bytes_; }
  // A chunk of unspecified content, valid until it is given back. Throws std::bad_alloc.
  std::byte* Take();
  // The same of memory that was used before; nullptr where there is none.
  std::byte* TakeIdle();
  // Makes `chunk` available to the next Take.
  void GiveBack(std::byte* chunk);
  // Bytes of chunks that were given back and not taken again.
  size_t idle_bytes() const;

  // Memory goes back to the system by emptying a block: BeginVacating, for each chunk in use that
  // it contains TakeIdle, a copy and GiveBack, and EndVacating. One thread at a time.
  struct Vacated {
    const std::byte* begin = nullptr;
    size_t bytes = 0;
    bool contains(const std::byte* chunk) const { return chunk >= begin && chunk < begin + bytes; }
  };
  // The block that has the least in use for its size, from which none is taken until EndVacating.
  // nullopt: what it has in use would not find room in the others' idle chunks.
  std::optional<Vacated> BeginVacating();
  // Returns how many bytes have gone: none where a chunk of the block is still in use.
  size_t EndVacating();

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(std::byte* memory) const;
  };
  struct Block {
    std::unique_ptr<std::byte[], Unmap> memory;
    size_t in_use = 0;  // chunks
    size_t idle = 0;
    size_t bytes() const { return memory.get_deleter().bytes; }
  };
  // By their first byte.
  using Blocks = std::map<const std::byte*, Block>;

  static Block MapBlock(size_t bytes, bool huge_pages);
  // nullptr where there is none at hand.
  std::byte* TakeReady(bool idle_only) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::byte* TakeOfNewBlock(size_t bytes, bool huge_pages);
  Blocks::iterator BlockOf(const std::byte* chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t chunk_bytes_;
  mutable absl::Mutex mutex_;
  std::vector<std::byte*> free_ ABSL_GUARDED_BY(mutex_);
  Blocks blocks_ ABSL_GUARDED_BY(mutex_);
  size_t block_bytes_ ABSL_GUARDED_BY(mutex_) = 0;     // of all blocks
  std::byte* next_ ABSL_GUARDED_BY(mutex_) = nullptr;  // in the newest block, never used
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Vacated> vacated_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::byte*> vacated_free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
