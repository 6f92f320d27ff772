// Whether to look again and again for a moment before a wait in the kernel: waking a thread takes
// longer than a small call, where a core is free to look. Where none is, or the peer takes its
// time, looking is a waste: so after one that was in vain the next ones are left out.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cairn {

// Thread safety: none.
class BriefSpin {
 public:
  // Twice what it takes a thread on an idle core to wake up and answer a small call.
  static constexpr std::chrono::microseconds kLongest{40};
  // Waits that are left out after one that was in vain; twice as many after each that follows.
  static constexpr int32_t kLeastSkipped = 32;
  static constexpr int32_t kMostSkipped = 2048;

  // Calls `look` until it returns true, for kLongest; or not at all. Returns what it returned last.
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
      ::sched_yield();  // the peer may be waiting for this very core
    } while (std::chrono::steady_clock::now() < end);
    skipped_ = std::clamp(2 * skipped_, kLeastSkipped, kMostSkipped);
    to_skip_ = skipped_;
    return false;
  }

 private:
  int32_t to_skip_ = 0;
  int32_t skipped_ = 0;
};

}  // namespace cairn
