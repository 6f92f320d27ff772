// Memory that only a device can reach, for devices simulated by loops on the CPU.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"

namespace cairn::test {

// The memory of one device. Host code that reads or writes it while no Access is open dies of
// SIGSEGV, as with a GPU's memory and unlike with ordinary memory. New allocations hold NaN.
// Nothing is freed before the end. Thread safety: every method may be called from several threads.
class GuardedMemory {
 public:
  GuardedMemory() {
    void* const memory =
        ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PCHECK(memory != MAP_FAILED) << "mmap";
    base_ = static_cast<std::byte*>(memory);
    absl::MutexLock lock(&all_mutex);
    all.insert(this);
  }
  ~GuardedMemory() {
    {
      absl::MutexLock lock(&all_mutex);
      all.erase(this);
    }
    PCHECK(::munmap(base_, kReserved) == 0) << "munmap";
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // During its lifetime the memory can be used. Accesses of several threads may overlap. Null: no
  // effect.
  class Access {
   public:
    explicit Access(GuardedMemory* memory) : memory_(memory) {
      if (memory_ != nullptr) memory_->Change(1);
    }
    ~Access() {
      if (memory_ != nullptr) memory_->Change(-1);
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    GuardedMemory* const memory_;
  };

  void* Allocate(size_t bytes) {
    const Access access(this);
    absl::MutexLock lock(&mutex_);
    std::byte* const block = base_ + used_;
    const size_t pages = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
    CHECK_LE(used_ + pages, kReserved) << "a test used up its device's memory";
    used_ += pages;
    PCHECK(::mprotect(block, pages, PROT_READ | PROT_WRITE) == 0) << "mprotect";
    std::fill_n(reinterpret_cast<float*>(block), pages / sizeof(float),
                std::numeric_limits<float>::quiet_NaN());
    return block;
  }

  // The memory that contains `address`; null: none.
  static GuardedMemory* Of(const void* address) {
    absl::MutexLock lock(&all_mutex);
    for (GuardedMemory* const memory : all) {
      const auto* const at = static_cast<const std::byte*>(address);
      if (at >= memory->base_ && at < memory->base_ + kReserved) return memory;
    }
    return nullptr;
  }

 private:
  static constexpr size_t kReserved = size_t{1} << 30;
  static constexpr size_t kPage = 4096;
  static inline absl::Mutex all_mutex{absl::kConstInit};
  static inline std::set<GuardedMemory*> all ABSL_GUARDED_BY(all_mutex);

  void Change(int accesses) {
    absl::MutexLock lock(&mutex_);
    const bool was_open = accesses_ > 0;
    accesses_ += accesses;
    if (was_open == (accesses_ > 0) || used_ == 0) return;
    PCHECK(::mprotect(base_, used_, was_open ? PROT_NONE : PROT_READ | PROT_WRITE) == 0)
        << "mprotect";
  }

  absl::Mutex mutex_;
  std::byte* base_ = nullptr;
  size_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  int accesses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::test
