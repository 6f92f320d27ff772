#include "worker/client/delivery/retained_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "thrift/payload.h"

namespace cairn {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kRegionBytes = 16 << 20;
// Other blocks are payloads of their own: small ones would keep a region from the system for
// little, large ones would leave too much of it unused.
constexpr size_t kMinRegionBlock = 64 << 10;
constexpr size_t kMaxRegionBlock = kRegionBytes / 4;

// AddressSanitizer detects overflows only in malloc's memory.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kUseRegions = false;
#else
constexpr bool kUseRegions = true;
#endif

}  // namespace

class RetainedMemory::Idle {
 public:
  ~Idle() { Close(); }
  // Memory of kRegionBytes in whole huge pages. Throws std::bad_alloc.
  std::byte* Take() {
    {
      absl::MutexLock lock(&mutex_);
      if (!idle_.empty()) {
        std::byte* const memory = idle_.back();
        idle_.pop_back();
        return memory;
      }
    }
    // Maps a huge page more than needed, and unmaps the parts before and after.
    void* const mapped = mmap(nullptr, kRegionBytes + kHugePage, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    auto* const first = static_cast<std::byte*>(mapped);
    const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(mapped) % kHugePage) % kHugePage;
    if (before > 0) munmap(first, before);
    munmap(first + before + kRegionBytes, kHugePage - before);
    madvise(first + before, kRegionBytes, MADV_HUGEPAGE);  // only a hint; small pages work too
    return first + before;
  }
  void GiveBack(std::byte* memory) {
    madvise(memory, kRegionBytes, MADV_FREE);
    absl::MutexLock lock(&mutex_);
    if (closed_ || !Keep(memory)) munmap(memory, kRegionBytes);
  }
  // Returns what is idle to the system, and later what becomes idle.
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    for (std::byte* const memory : idle_) munmap(memory, kRegionBytes);
    idle_.clear();
  }

 private:
  bool Keep(std::byte* memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    try {
      idle_.push_back(memory);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::byte*> idle_ ABSL_GUARDED_BY(mutex_);
};

class RetainedMemory::Region {
 public:
  explicit Region(std::shared_ptr<Idle> idle) : idle_(std::move(idle)), memory_(idle_->Take()) {}
  ~Region() { idle_->GiveBack(memory_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // nullptr: no `bytes` are left.
  std::byte* Cut(size_t bytes) {
    if (bytes > kRegionBytes - used_) return nullptr;
    return memory_ + std::exchange(used_, used_ + bytes);
  }

 private:
  const std::shared_ptr<Idle> idle_;
  std::byte* const memory_;
  size_t used_ = 0;
};

RetainedMemory::RetainedMemory() : idle_(std::make_shared<Idle>()) {}

RetainedMemory::~RetainedMemory() { idle_->Close(); }

std::shared_ptr<std::byte> RetainedMemory::Take(size_t bytes) {
  if (!kUseRegions || bytes < kMinRegionBlock || bytes > kMaxRegionBlock) {
    const auto payload = std::make_shared<Payload>(Payload::Uninitialized(bytes));
    return std::shared_ptr<std::byte>(payload, payload->mutable_data());
  }
  bytes = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  absl::MutexLock lock(&mutex_);
  std::byte* block = newest_ == nullptr ? nullptr : newest_->Cut(bytes);
  if (block == nullptr) {
    newest_ = std::make_shared<Region>(idle_);
    block = newest_->Cut(bytes);
  }
  return std::shared_ptr<std::byte>(newest_, block);
}

}  // namespace cairn
