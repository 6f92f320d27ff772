// The step a worker is at, as it tells every server.
#pragma once

#include <atomic>
#include <cstdint>

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class StepClock {
 public:
  // What hello tells: the last step announced, -1: no more are taken.
  int64_t Announced() const {
    return ended_.load(std::memory_order_relaxed) ? -1 : step_.load(std::memory_order_relaxed);
  }
  // What a server said; the clock only rises.
  void RaiseTo(int64_t step) {
    int64_t now = step_.load(std::memory_order_relaxed);
    while (step > now && !step_.compare_exchange_weak(now, step, std::memory_order_relaxed)) {
    }
  }
  // The step that begins now.
  int64_t Next() {
    ended_.store(false, std::memory_order_relaxed);
    return step_.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  void End() { ended_.store(true, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> step_{0};
  std::atomic<bool> ended_{false};
};

}  // namespace cairn
