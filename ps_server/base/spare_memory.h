// Lets Abseil's hash tables grow safely when memory may run out.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace cairn {

// Memory set aside for the next allocation of a table. Thread safety: none.
class SpareMemory {
 public:
  SpareMemory() = default;
  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;
  ~SpareMemory() { Clear(); }

  // Makes sure that at least `bytes` are set aside. False: the allocation failed.
  bool Reserve(size_t bytes) {
    if (bytes <= bytes_) return true;
    Clear();
    memory_ = ::operator new(bytes, std::nothrow);
    bytes_ = memory_ == nullptr ? 0 : bytes;
    return memory_ != nullptr;
  }
  void Clear() {
    ::operator delete(memory_);
    memory_ = nullptr;
    bytes_ = 0;
  }
  // Passes the memory to the caller. nullptr: less than `bytes` are set aside.
  void* Take(size_t bytes) {
    if (bytes > bytes_) return nullptr;
    bytes_ = 0;
    return std::exchange(memory_, nullptr);
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

// Abseil's tables store their new size before they allocate memory for it, and are unusable if that
// allocation throws. With this allocator, the owner of a table reserves the memory first; if that
// fails, the table is unharmed.
template <typename T>
class SpareAllocator {
 public:
  using value_type = T;

  explicit SpareAllocator(SpareMemory* spare) : spare_(spare) {}
  template <typename U>
  SpareAllocator(const SpareAllocator<U>& other) : spare_(other.spare()) {}

  T* allocate(size_t count) {
    void* const spare = spare_->Take(count * sizeof(T));
    return static_cast<T*>(spare != nullptr ? spare : ::operator new(count * sizeof(T)));
  }
  void deallocate(T* memory, size_t) { ::operator delete(memory); }
  SpareMemory* spare() const { return spare_; }

  template <typename U>
  bool operator==(const SpareAllocator<U>& other) const {
    return spare_ == other.spare();
  }

 private:
  SpareMemory* spare_;
};

}  // namespace cairn
