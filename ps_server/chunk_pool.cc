#include "ps_server/chunk_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace cairn {
namespace {

constexpr size_t kHugePage = 2 << 20;
// Chunks up to this many bytes together come from malloc: with more, the last huge page, which is
// half unused on average, is at most a few per cent of the table.
constexpr size_t kSmallBytes = 16 << 20;
constexpr size_t kLargestBlock = 32 << 20;

size_t RoundToHugePages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

}  // namespace

void ChunkPool::Free::operator()(std::byte* memory) const { std::free(memory); }
void ChunkPool::Unmap::operator()(std::byte* memory) const { munmap(memory, bytes); }

ChunkPool::ChunkPool(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

// The system is asked without the lock: it can be busy with a page for another thread, and others
// take what there is in the meantime.
std::byte* ChunkPool::Take() {
  size_t block_bytes = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (std::byte* const chunk = TakeReady(); chunk != nullptr) return chunk;
    if (small_bytes_ + chunk_bytes_ <= kSmallBytes) {
      small_bytes_ += chunk_bytes_;
    } else {
      const size_t wanted = std::clamp(block_bytes_ / 8, kHugePage, kLargestBlock);
      block_bytes = RoundToHugePages(std::max(wanted, chunk_bytes_));
    }
  }
  return block_bytes == 0 ? TakeSmall() : TakeOfNewBlock(block_bytes);
}

std::byte* ChunkPool::TakeReady() {
  if (!free_.empty()) {
    std::byte* const chunk = free_.back();
    free_.pop_back();
    return chunk;
  }
  if (left_ < chunk_bytes_) return nullptr;
  std::byte* const chunk = next_;
  next_ += chunk_bytes_;
  left_ -= chunk_bytes_;
  return chunk;
}

std::byte* ChunkPool::TakeSmall() {
  Small memory(static_cast<std::byte*>(std::malloc(chunk_bytes_)));
  if (memory == nullptr) throw std::bad_alloc();
  std::byte* const chunk = memory.get();
  absl::MutexLock lock(&mutex_);
  small_.push_back(std::move(memory));
  return chunk;
}

std::byte* ChunkPool::TakeOfNewBlock(size_t bytes) {
  Block block = MapBlock(bytes);
  std::byte* const begin = block.get();
  absl::MutexLock lock(&mutex_);
  blocks_.push_back(std::move(block));
  block_bytes_ += bytes;
  // Another thread may have added a block, too: what is left of it stays in use.
  for (; left_ >= chunk_bytes_; left_ -= chunk_bytes_, next_ += chunk_bytes_) {
    free_.push_back(next_);
  }
  next_ = begin + chunk_bytes_;
  left_ = bytes - chunk_bytes_;
  return begin;
}

void ChunkPool::GiveBack(std::byte* chunk) {
  absl::MutexLock lock(&mutex_);
  free_.push_back(chunk);
}

size_t ChunkPool::idle_bytes() const {
  absl::MutexLock lock(&mutex_);
  return free_.size() * chunk_bytes_;
}

// Mapped with a huge page to spare, of which what lies before and behind the alignment goes back.
ChunkPool::Block ChunkPool::MapBlock(size_t bytes) {
  void* const mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
  if (before > 0) munmap(first, before);
  std::byte* const begin = first + before;
  munmap(begin + bytes, kHugePage - before);
  madvise(begin, bytes, MADV_HUGEPAGE);  // a hint; small pages do as well
  return Block(begin, Unmap{bytes});
}

}  // namespace cairn
