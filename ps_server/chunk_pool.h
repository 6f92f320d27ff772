// Memory for the rows of one table, in chunks of one size.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// A large table's chunks are cut from blocks that ask the kernel for huge pages: rows are read in
// random order, and with pages of 4 KiB nearly each one costs a walk of the page tables; filling
// them costs a fault a page. A small table's come from malloc, since a huge page is large beside
// it. Thread safety: every method may be called from several threads at once.
class ChunkPool {
 public:
  explicit ChunkPool(size_t chunk_bytes);
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  size_t chunk_bytes() const { return chunk_bytes_; }
  // A chunk of unspecified content, valid until the pool is destroyed. Throws std::bad_alloc.
  std::byte* Take();
  // Makes `chunk` available to the next Take.
  void GiveBack(std::byte* chunk);
  // Bytes of chunks that were given back and not taken again.
  size_t idle_bytes() const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Unmap {
    size_t bytes = 0;
    void operator()(std::byte* memory) const;
  };
  using Small = std::unique_ptr<std::byte[], Free>;
  using Block = std::unique_ptr<std::byte[], Unmap>;

  static Block MapBlock(size_t bytes);
  // nullptr where there is none at hand.
  std::byte* TakeReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::byte* TakeSmall();
  std::byte* TakeOfNewBlock(size_t bytes);

  const size_t chunk_bytes_;
  mutable absl::Mutex mutex_;
  std::vector<std::byte*> free_ ABSL_GUARDED_BY(mutex_);
  std::vector<Small> small_ ABSL_GUARDED_BY(mutex_);
  size_t small_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of small_, and of those that are to join it
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);
  size_t block_bytes_ ABSL_GUARDED_BY(mutex_) = 0;     // of all blocks
  std::byte* next_ ABSL_GUARDED_BY(mutex_) = nullptr;  // in the last block
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
