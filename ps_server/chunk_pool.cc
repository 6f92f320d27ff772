#include "ps_server/chunk_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace cairn {
namespace {

constexpr size_t kHugePage = 2 << 20;
// Chunks up to this many bytes together come from malloc: with more, the last huge page, which is
// half unused on average, is at most a few per cent of the table.
constexpr size_t kSmallBytes = 16 << 20;
constexpr size_t kLargestBlock = 32 << 20;

size_t RoundToHugePages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

}  // namespace

ChunkPool::ChunkPool(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

ChunkPool::~ChunkPool() {
  for (std::byte* chunk : small_) std::free(chunk);
  for (const Block& block : blocks_) munmap(block.begin, block.bytes);
}

std::byte* ChunkPool::Take() {
  absl::MutexLock lock(&mutex_);
  if (!free_.empty()) {
    std::byte* chunk = free_.back();
    free_.pop_back();
    return chunk;
  }
  if ((small_.size() + 1) * chunk_bytes_ <= kSmallBytes) {
    small_.push_back(nullptr);
    small_.back() = static_cast<std::byte*>(std::malloc(chunk_bytes_));
    if (small_.back() == nullptr) throw std::bad_alloc();
    return small_.back();
  }
  if (left_ < chunk_bytes_) AddBlock();
  std::byte* chunk = next_;
  next_ += chunk_bytes_;
  left_ -= chunk_bytes_;
  return chunk;
}

void ChunkPool::GiveBack(std::byte* chunk) {
  absl::MutexLock lock(&mutex_);
  free_.push_back(chunk);
}

// Mapped with a huge page to spare, of which what lies before and behind the alignment goes back.
void ChunkPool::AddBlock() {
  const size_t wanted = std::clamp(block_bytes_ / 8, kHugePage, kLargestBlock);
  const size_t bytes = RoundToHugePages(std::max(wanted, chunk_bytes_));
  blocks_.reserve(blocks_.size() + 1);
  void* const mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
  if (before > 0) munmap(first, before);
  std::byte* const begin = first + before;
  munmap(begin + bytes, kHugePage - before);
  madvise(begin, bytes, MADV_HUGEPAGE);  // a hint; small pages do as well
  blocks_.push_back({.begin = begin, .bytes = bytes});
  block_bytes_ += bytes;
  next_ = begin;
  left_ = bytes;
}

}  // namespace cairn
