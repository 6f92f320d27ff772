// Memory for the rows of one table, in chunks of one size.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace cairn {

// A large table's chunks are cut from blocks that ask the kernel for huge pages: rows are read in
// random order, and with pages of 4 KiB nearly each one costs a walk of the page tables; filling
// them costs a fault a page. A small table's come from malloc, since a huge page is large beside
// it. Thread safety: every method may be called from several threads at once.
class ChunkPool {
 public:
  explicit ChunkPool(size_t chunk_bytes);
  ~ChunkPool();
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  size_t chunk_bytes() const { return chunk_bytes_; }
  // A chunk of unspecified content, valid until the pool is destroyed. Throws std::bad_alloc.
  std::byte* Take();
  // Makes `chunk` available to the next Take.
  void GiveBack(std::byte* chunk);

 private:
  struct Block {
    std::byte* begin = nullptr;
    size_t bytes = 0;
  };

  void AddBlock();

  const size_t chunk_bytes_;
  absl::Mutex mutex_;  // guards what follows
  std::vector<std::byte*> free_;
  std::vector<std::byte*> small_;  // from malloc
  std::vector<Block> blocks_;      // from mmap
  size_t block_bytes_ = 0;         // of all blocks
  std::byte* next_ = nullptr;      // in the last block
  size_t left_ = 0;
};

}  // namespace cairn
