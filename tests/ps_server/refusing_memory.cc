#include "tests/ps_server/refusing_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace cairn::test {

std::atomic<bool> refuse_maps{false};
thread_local int64_t allocations_left = -1;
thread_local int64_t refused = 0;
thread_local bool refuse_rest = false;
thread_local int64_t held_bytes = 0;
thread_local int64_t most_held_bytes = 0;
std::atomic<size_t> refused_size{0};
std::atomic<int64_t> refused_of_size{0};

namespace {

std::atomic<bool> refuses_elsewhere{false};
std::atomic<bool> refuses_all_elsewhere{false};
std::atomic<int64_t> left_elsewhere{0};
std::atomic<int64_t> refused_elsewhere{0};
thread_local bool is_spared = false;

bool RefusesElsewhere() {
  if (!refuses_elsewhere.load() || is_spared) return false;
  const int64_t left = left_elsewhere.fetch_sub(1);
  if (left > 0 || (left < 0 && !refuses_all_elsewhere.load())) return false;
  ++refused_elsewhere;
  return true;
}

void* Allocate(size_t bytes, size_t alignment = alignof(std::max_align_t)) {
  if (RefusesElsewhere()) throw std::bad_alloc();
  if (bytes != 0 && bytes == refused_size.load(std::memory_order_relaxed)) {
    ++refused_of_size;
    throw std::bad_alloc();
  }
  if (allocations_left == 0) {
    if (!refuse_rest) allocations_left = -1;
    ++refused;
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
  if (bytes > SIZE_MAX - alignment) throw std::bad_alloc();
  const size_t whole = (bytes + alignment) / alignment * alignment;  // at least one byte
  void* const memory = std::aligned_alloc(alignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  held_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  most_held_bytes = std::max(most_held_bytes, held_bytes);
  return memory;
}

void Free(void* memory) noexcept {
  held_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

NoMemoryElsewhere::NoMemoryElsewhere(int64_t succeeding, Refuses refuses) {
  is_spared = true;
  refused_elsewhere.store(0);
  left_elsewhere.store(succeeding);
  refuses_all_elsewhere.store(refuses == Refuses::kAll);
  refuses_elsewhere.store(true);
}

NoMemoryElsewhere::~NoMemoryElsewhere() {
  refuses_elsewhere.store(false);
  is_spared = false;
}

int64_t NoMemoryElsewhere::refused() const { return refused_elsewhere.load(); }

}  // namespace cairn::test

// Replaces the C library's, for calls from this program's own objects.
extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int fd,
                      off_t offset) noexcept {
  if (cairn::test::refuse_maps.load()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}

void* operator new(size_t bytes) { return cairn::test::Allocate(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return cairn::test::Allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](size_t bytes) { return cairn::test::Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return cairn::test::Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory, std::align_val_t) noexcept { cairn::test::Free(memory); }
// AddressSanitizer's would not call the one above.
void operator delete(void* memory, size_t, std::align_val_t) noexcept { cairn::test::Free(memory); }
void operator delete(void* memory) noexcept { cairn::test::Free(memory); }
void operator delete[](void* memory) noexcept { cairn::test::Free(memory); }
void operator delete(void* memory, size_t) noexcept { cairn::test::Free(memory); }
void operator delete[](void* memory, size_t) noexcept { cairn::test::Free(memory); }
