// Decides whether to poll for a moment before a wait in the kernel. If a core is free to poll,
// polling is faster than waking a thread, which takes longer than a small call. If no core is free,
// or the peer takes long, polling is wasteful; so after an unsuccessful attempt the next ones are
// skipped.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cairn {

// Thread safety: none.
class BriefSpin {
 public:
  // Twice the time that a thread on an idle core takes to wake up and answer a small call.
  static constexpr std::chrono::microseconds kLongest{40};
  // Attempts to skip after an unsuccessful one; doubled after each further unsuccessful one.
  static constexpr int32_t kMinSkipped = 32;
  static constexpr int32_t kMaxSkipped = 2048;

  // Calls `look` until it returns true or kLongest has passed, or skips the attempt. Returns the
  // last result.
  template <typename Look>
  bool Try(Look look) {
    if (to_skip_ > 0) {
      --to_skip_;
      return false;
    }
    const auto end = std::chrono::steady_clock::now() + kLongest;
    do {
      if (look()) {
        skipped_ = 0;
        return true;
      }
      ::sched_yield();  // the peer may be waiting for this core
    } while (std::chrono::steady_clock::now() < end);
    skipped_ = std::clamp(2 * skipped_, kMinSkipped, kMaxSkipped);
    to_skip_ = skipped_;
    return false;
  }

 private:
  int32_t to_skip_ = 0;
  int32_t skipped_ = 0;
};

}  // namespace cairn
