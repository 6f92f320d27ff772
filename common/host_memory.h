// Host memory that devices copy to and from directly.
//
// A GPU copies page-locked memory at full speed while the host works; other memory has to be copied
// to page-locked memory first. Large HostVectors are page-locked if the process uses GPUs.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace cairn {

// Allocates and frees page-locked memory. `allocate` returns null if it cannot. Both may take
// milliseconds.
struct HostMemorySource {
  void* (*allocate)(size_t bytes) = nullptr;
  void (*free)(void* memory) = nullptr;
};

// Sets the source of the memory of later large HostVectors. Only the first call has an effect. The
// source must work until the process ends. Thread safety: any thread.
void SetHostMemorySource(HostMemorySource source);

// Whether a page-locked HostVector begins at `memory`. Thread safety: any thread.
bool IsPageLocked(const void* memory);

// While one exists, new HostVectors get blocks that are page-locked already and free, or ordinary
// memory. Page locking takes locks of the device's runtime and may wait for all work of a device;
// that work may wait for calls of other threads, which need those locks. The constructor waits
// until no thread page-locks, for as long as no device hangs (EndPageLocking).
class HostMemoryPause {
 public:
  HostMemoryPause();
  ~HostMemoryPause();
  HostMemoryPause(const HostMemoryPause&) = delete;
  HostMemoryPause& operator=(const HostMemoryPause&) = delete;
};

// A device hangs: from here on no HostVector is page-locked, because that would wait for the
// device, and freed blocks are not used again, because the device may still copy to them. Waits for
// nothing. Thread safety: any thread.
void EndPageLocking();

namespace host_memory_internal {
void* Allocate(size_t bytes);  // throws std::bad_alloc
void Free(void* memory, size_t bytes);
}  // namespace host_memory_internal

// The allocator of HostVector. Page-locked memory is kept when it is freed, for later vectors.
template <typename T>
struct HostAllocator {
  using value_type = T;

  HostAllocator() = default;
  template <typename U>
  HostAllocator(const HostAllocator<U>&) {}  // NOLINT(google-explicit-constructor): rebinding

  T* allocate(size_t count) {
    if (count > static_cast<size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(host_memory_internal::Allocate(count * sizeof(T)));
  }
  void deallocate(T* memory, size_t count) {
    host_memory_internal::Free(memory, count * sizeof(T));
  }
  bool operator==(const HostAllocator&) const { return true; }
};

template <typename T>
using HostVector = std::vector<T, HostAllocator<T>>;

}  // namespace cairn
