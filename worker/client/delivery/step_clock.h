// The step that a worker announces to every server.
#pragma once

#include <atomic>
#include <cstdint>

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class StepClock {
 public:
  // The value for hello: the last announced step; -1: the worker takes no more steps.
  int64_t Announced() const {
    return ended_.load(std::memory_order_relaxed) ? -1 : step_.load(std::memory_order_relaxed);
  }
  // Raises the clock to a server's value; it never falls.
  void RaiseTo(int64_t step) {
    int64_t now = step_.load(std::memory_order_relaxed);
    while (step > now && !step_.compare_exchange_weak(now, step, std::memory_order_relaxed)) {
    }
  }
  // Begins the next step and returns it.
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
