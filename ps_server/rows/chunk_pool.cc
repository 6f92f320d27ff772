#include "ps_server/rows/chunk_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <utility>

#include "ps_server/base/background.h"

namespace cairn {
namespace {

constexpr size_t kHugePage = 2 << 20;
// Tables up to this size use small pages. Above it, the last huge page, half unused on average, is
// at most a few per cent of the table.
constexpr size_t kSmallBytes = 16 << 20;
constexpr size_t kSmallBlock = 256 << 10;
constexpr size_t kMaxBlock = 32 << 20;
// A table's blocks grow with the table, to 1/kBlockShare of its size: a block is the smallest unit
// that returns to the system, and the most that is mapped beyond need.
constexpr size_t kBlockShare = 64;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

void ChunkPool::Unmap::operator()(std::byte* memory) const { munmap(memory, bytes); }

ChunkPool::ChunkPool(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

// Calls the system without the lock: the call can be slow while the kernel clears pages, and
// meanwhile other threads can take chunks that are ready.
std::byte* ChunkPool::Take() {
  size_t bytes = 0;
  bool huge_pages = false;
  {
    absl::MutexLock lock(&mutex_);
    if (std::byte* const chunk = TakeReady(/*idle_only=*/false); chunk != nullptr) return chunk;
    huge_pages = IsLarge();
    bytes = NextBlockBytes();
  }
  return TakeOfNewBlock(1, bytes, huge_pages);
}

std::byte* ChunkPool::TakeRun(size_t chunks) {
  size_t bytes = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (!IsLarge()) return nullptr;
    if (std::byte* const first = TakeFresh(chunks); first != nullptr) return first;
    bytes = NextBlockBytes();
  }
  return TakeOfNewBlock(chunks, bytes, /*huge_pages=*/true);
}

size_t ChunkPool::NextBlockBytes() const {
  const size_t least = IsLarge() ? kHugePage : kSmallBlock;
  return RoundUp(std::clamp(block_bytes_ / kBlockShare, least, kMaxBlock), least);
}

bool ChunkPool::IsLarge() const { return block_bytes_ + chunk_bytes_ > kSmallBytes; }

std::optional<ChunkPool::Block> ChunkPool::TakeAhead() {
  absl::MutexLock lock(&ahead_->mutex);
  return std::exchange(ahead_->block, std::nullopt);
}

void ChunkPool::MakeAhead(size_t bytes) {
  {
    absl::MutexLock lock(&ahead_->mutex);
    if (ahead_->making || ahead_->block.has_value()) return;
    ahead_->making = true;
  }
  const auto make = [ahead = ahead_, bytes] {
    std::optional<Block> block;
    try {
      block = MapBlock(bytes, /*huge_pages=*/true);
      // Page by page, because other calls that change the process's memory wait meanwhile. Older
      // kernels refuse; then a page is cleared when it is first used.
      for (size_t at = 0; at < bytes; at += kHugePage) {
        madvise(block->memory.get() + at, kHugePage, MADV_POPULATE_WRITE);
      }
    } catch (const std::bad_alloc&) {  // the next Take finds out
    }
    absl::MutexLock lock(&ahead->mutex);
    ahead->block = std::move(block);
    ahead->making = false;
  };
  // The caller already has its chunk, which an exception would lose.
  try {
    RunInBackground(make);
  } catch (const std::exception&) {  // no memory or no thread: there is no block ahead
    absl::MutexLock lock(&ahead_->mutex);
    ahead_->making = false;
  }
}

std::byte* ChunkPool::TakeIdle() {
  absl::MutexLock lock(&mutex_);
  return TakeReady(/*idle_only=*/true);
}

ChunkPool::Blocks::iterator ChunkPool::BlockOf(const std::byte* chunk) {
  return std::prev(blocks_.upper_bound(chunk));
}

std::byte* ChunkPool::TakeReady(bool idle_only) {
  if (!free_.empty()) {
    std::byte* const chunk = free_.back();
    free_.pop_back();
    Block& block = BlockOf(chunk)->second;
    --block.idle;
    ++block.in_use;
    return chunk;
  }
  return idle_only ? nullptr : TakeFresh(1);
}

std::byte* ChunkPool::TakeFresh(size_t chunks) {
  const size_t bytes = chunks * chunk_bytes_;
  if (left_ < bytes) return nullptr;
  std::byte* const first = next_;
  next_ += bytes;
  left_ -= bytes;
  BlockOf(first)->second.in_use += chunks;
  return first;
}

std::byte* ChunkPool::TakeOfNewBlock(size_t chunks, size_t bytes, bool huge_pages) {
  const size_t needed = chunks * chunk_bytes_;
  std::optional<Block> ahead;
  if (huge_pages) ahead = TakeAhead();
  const size_t least = RoundUp(std::max(bytes, needed), huge_pages ? kHugePage : kSmallBlock);
  Block block = ahead.has_value() && ahead->bytes() >= needed ? *std::move(ahead)
                                                              : MapBlock(least, huge_pages);
  std::byte* const begin = AddBlock(std::move(block), chunks);
  if (huge_pages) MakeAhead(bytes);
  return begin;
}

std::byte* ChunkPool::AddBlock(Block block, size_t chunks) {
  const size_t bytes = block.bytes();
  std::byte* const begin = block.memory.get();
  block.in_use = chunks;
  absl::MutexLock lock(&mutex_);
  // Reserves an entry for every chunk that exists, so that no chunk is lost below and GiveBack
  // cannot throw.
  const size_t all = (block_bytes_ + bytes) / chunk_bytes_;
  if (free_.capacity() < all) free_.reserve(std::max(all, 2 * free_.capacity()));
  blocks_.emplace(begin, std::move(block));
  block_bytes_ += bytes;
  // Another thread may have added a block at the same time; the rest of its block becomes free
  // chunks.
  for (; left_ >= chunk_bytes_; left_ -= chunk_bytes_, next_ += chunk_bytes_) {
    ++BlockOf(next_)->second.idle;
    free_.push_back(next_);
  }
  next_ = begin + chunks * chunk_bytes_;
  left_ = bytes - chunks * chunk_bytes_;
  return begin;
}

void ChunkPool::GiveBack(std::byte* chunk) {
  absl::MutexLock lock(&mutex_);
  Block& block = BlockOf(chunk)->second;
  --block.in_use;
  ++block.idle;
  const bool vacated = vacated_.has_value() && vacated_->contains(chunk);
  (vacated ? vacated_free_ : free_).push_back(chunk);
}

size_t ChunkPool::idle_bytes() const {
  absl::MutexLock lock(&mutex_);
  return (free_.size() + vacated_free_.size()) * chunk_bytes_;
}

std::optional<ChunkPool::Vacated> ChunkPool::BeginVacating() {
  TakeAhead();  // and returns it to the system
  absl::MutexLock lock(&mutex_);
  const Block* emptiest = nullptr;
  for (const auto& [begin, block] : blocks_) {
    // The newest block still has chunks that were never used.
    if (left_ >= chunk_bytes_ && next_ > begin && next_ < begin + block.bytes()) continue;
    if (emptiest == nullptr || block.in_use * emptiest->bytes() < emptiest->in_use * block.bytes())
      emptiest = &block;
  }
  if (emptiest == nullptr || free_.size() - emptiest->idle < emptiest->in_use) return std::nullopt;
  vacated_free_.reserve(emptiest->bytes() / chunk_bytes_);  // as with free_
  vacated_ = Vacated{.begin = emptiest->memory.get(), .bytes = emptiest->bytes()};
  const auto theirs = std::ranges::stable_partition(
      free_, [&](std::byte* chunk) { return !vacated_->contains(chunk); });
  vacated_free_.assign(theirs.begin(), theirs.end());
  free_.erase(theirs.begin(), theirs.end());
  return vacated_;
}

size_t ChunkPool::EndVacating() {
  Blocks::node_type unmapped;  // destroyed after the lock is released
  absl::MutexLock lock(&mutex_);
  const auto at = blocks_.find(vacated_->begin);
  const size_t bytes = at->second.in_use > 0 ? 0 : vacated_->bytes;
  if (bytes == 0) {
    free_.insert(free_.end(), vacated_free_.begin(), vacated_free_.end());
  } else {
    unmapped = blocks_.extract(at);
    block_bytes_ -= bytes;
  }
  vacated_free_.clear();
  vacated_.reset();
  return bytes;
}

// Maps one huge page more than needed, and unmaps the parts before and after the aligned range.
ChunkPool::Block ChunkPool::MapBlock(size_t bytes, bool huge_pages) {
  const size_t spare = huge_pages ? kHugePage : 0;
  void* const mapped = mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(mapped);
  size_t before = 0;
  if (huge_pages) {
    before = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
    if (before > 0) munmap(first, before);
    munmap(first + before + bytes, kHugePage - before);
    madvise(first + before, bytes, MADV_HUGEPAGE);  // only a hint; small pages work too
  }
  return Block{.memory = {first + before, Unmap{bytes}}};
}

}  // namespace cairn
