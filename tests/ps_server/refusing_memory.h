// Replaces operator new and mmap of the test program, so that a test can refuse memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cairn::test {

extern std::atomic<bool> refuse_maps;
// For this thread: how many allocations succeed before one fails; negative: all succeed.
extern thread_local int64_t allocations_left;
extern thread_local int64_t refused;
// After the first refusal, this thread's allocations fail until this is false again.
extern thread_local bool refuse_rest;
// Bytes that this thread has allocated and not freed, and the most since a test set it. Memory that
// other threads free still counts.
extern thread_local int64_t held_bytes;
extern thread_local int64_t most_held_bytes;
// Allocations of exactly this size fail in every thread; 0: none does.
extern std::atomic<size_t> refused_size;
extern std::atomic<int64_t> refused_of_size;

// While one exists, of the allocations of all other threads, after the first `succeeding` one
// fails, or all do. One at a time.
class NoMemoryElsewhere {
 public:
  enum class Refuses { kOne, kAll };
  NoMemoryElsewhere(int64_t succeeding, Refuses refuses);
  ~NoMemoryElsewhere();
  int64_t refused() const;
};

// While one exists, this thread gets no memory.
class NoMemory {
 public:
  NoMemory() {
    refuse_rest = true;
    allocations_left = 0;
  }
  ~NoMemory() {
    refuse_rest = false;
    allocations_left = -1;
  }
};

}  // namespace cairn::test
