// Replaces pthread_create of the test program, so that a test can refuse threads.
#pragma once

#include <atomic>

namespace cairn::test {

extern std::atomic<bool> refuse_threads;

// While one exists, no thread of the program gets another.
class NoThreads {
 public:
  NoThreads() { refuse_threads = true; }
  ~NoThreads() { refuse_threads = false; }
};

}  // namespace cairn::test
