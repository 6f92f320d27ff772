// Memory for the rows of one table, in chunks of equal size.
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

// Chunks are cut from blocks, and only whole blocks return to the system. The blocks of a large
// table use huge pages: rows are read in random order, and with pages of 4 KiB nearly every read
// costs a page-table walk, and filling them costs a page fault each. Small tables use small pages,
// because a huge page is large compared with them. The next block of a large table is made ahead,
// in another thread, because the kernel takes longer to clear a huge page than a push takes to fill
// a part of it. Thread safety: every method may be called from several threads at once.
class ChunkPool {
 public:
  explicit ChunkPool(size_t chunk_bytes);
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  size_t chunk_bytes() const { return chunk_bytes_; }
  // Returns a chunk of unspecified content, valid until GiveBack. Throws std::bad_alloc.
  std::byte* Take();
  // Returns `chunks` adjacent chunks, each to be given back. nullptr: the table is not large, and
  // has no memory that is ready for use. Throws std::bad_alloc.
  std::byte* TakeRun(size_t chunks);
  size_t ChunksFor(size_t bytes) const { return (bytes + chunk_bytes_ - 1) / chunk_bytes_; }
  // As Take, but only returns a chunk that was given back before; nullptr if there is none.
  std::byte* TakeIdle();
  // Makes `chunk` available to the next Take.
  void GiveBack(std::byte* chunk);
  // Bytes of chunks that were given back and not taken again.
  size_t idle_bytes() const;

  // To return memory to the system, empty a block: BeginVacating, then TakeIdle, a copy and
  // GiveBack for each chunk in use that the block contains, then EndVacating. One thread at a time.
  struct Vacated {
    const std::byte* begin = nullptr;
    size_t bytes = 0;
    bool contains(const std::byte* chunk) const { return chunk >= begin && chunk < begin + bytes; }
  };
  // Picks the block with the smallest share of chunks in use. No chunk is taken from it until
  // EndVacating. nullopt: the idle chunks of the other blocks cannot hold its chunks in use.
  std::optional<Vacated> BeginVacating();
  // Returns how many bytes were returned to the system; 0 if a chunk of the block is still in use.
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
  // Keyed by the block's first byte.
  using Blocks = std::map<const std::byte*, Block>;
  // Outlives the pool while the block is made.
  struct Ahead {
    absl::Mutex mutex;
    bool making ABSL_GUARDED_BY(mutex) = false;
    std::optional<Block> block ABSL_GUARDED_BY(mutex);
  };

  static Block MapBlock(size_t bytes, bool huge_pages);
  // The block that was made ahead, if there is one.
  std::optional<Block> TakeAhead();
  void MakeAhead(size_t bytes);
  // nullptr if no chunk is ready.
  std::byte* TakeReady(bool idle_only) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `chunks` adjacent chunks that were never used; nullptr if the newest block has fewer.
  std::byte* TakeFresh(size_t chunks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes them of a new block of at least `bytes`.
  std::byte* TakeOfNewBlock(size_t chunks, size_t bytes, bool huge_pages);
  // Its first `chunks` chunks are in use. Returns the first.
  std::byte* AddBlock(Block block, size_t chunks);
  // Whether new blocks are of huge pages, and their size.
  bool IsLarge() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t NextBlockBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Blocks::iterator BlockOf(const std::byte* chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t chunk_bytes_;
  const std::shared_ptr<Ahead> ahead_ = std::make_shared<Ahead>();
  mutable absl::Mutex mutex_;
  std::vector<std::byte*> free_ ABSL_GUARDED_BY(mutex_);
  Blocks blocks_ ABSL_GUARDED_BY(mutex_);
  size_t block_bytes_ ABSL_GUARDED_BY(mutex_) = 0;     // size of all blocks
  std::byte* next_ ABSL_GUARDED_BY(mutex_) = nullptr;  // in the newest block, never used
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Vacated> vacated_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::byte*> vacated_free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
