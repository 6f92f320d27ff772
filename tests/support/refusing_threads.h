// Replaces pthread_create of the test program, so that a test can refuse threads.
#pragma once

#include <atomic>
#include <cstdint>

namespace cairn::test {

// How many threads the program still gets; negative: all that it wants.
extern std::atomic<int64_t> threads_left;

// While one exists, the program gets no thread after the first `succeeding`.
class NoThreads {
 public:
  explicit NoThreads(int64_t succeeding = 0) { threads_left = succeeding; }
  ~NoThreads() { threads_left = -1; }
};

}  // namespace cairn::test
