// Simulated time and threads. Code that blocks runs as a fiber on a separate stack, and switches to
// the next event where a thread would wait. One thread runs everything, so a run depends only on
// the scheduled events.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

namespace cairn::simulator {

// Nanoseconds since the start of the run.
using Nanos = int64_t;
inline constexpr Nanos kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;
inline constexpr Nanos kForever = INT64_MAX;

// Identifies one wait of a fiber, for Scheduler::Wake. A ticket is valid for one wait, so a late
// Wake has no effect.
struct Ticket {
  uint32_t fiber = 0;
  uint64_t wait = 0;
};

// Thread safety: none. At most one scheduler exists at a time; the replaced clock and condition
// variables (replaced_waits.cc) use it.
class Scheduler {
 public:
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  static Scheduler& Current();

  Nanos now() const { return now_; }
  // Reads the clock. Every reading advances it a little, so no two are equal.
  Nanos ReadClock() { return now_ + ++readings_; }
  int64_t events() const { return events_; }

  // Events of the same moment run in the order in which they were scheduled.
  void At(Nanos when, std::function<void()> event);
  void In(Nanos delay, std::function<void()> event) { At(now_ + delay, std::move(event)); }
  // Starts `body` in a fiber, as an event of this moment. `name`: a literal, for messages about
  // stuck fibers.
  void Spawn(const char* name, std::function<void()> body);

  // Runs events until `done` returns true after one (returns true), or no event is due by `limit`.
  bool Run(Nanos limit, const std::function<bool()>& done);

  // --- Only in a fiber. ---
  static bool InFiber();
  Ticket Prepare();
  // Waits until Wake(ticket) (returns true) or until `until`.
  bool Wait(const Ticket& ticket, Nanos until);
  void Sleep(Nanos duration);
  // Resumes the fiber as an event of this moment. May be called from anywhere.
  void Wake(const Ticket& ticket);

  // Waits on condition variables, identified by their address.
  bool WaitOn(const void* condition, Nanos until);
  void WakeAll(const void* condition);

  size_t fibers() const { return live_; }

 private:
  struct Fiber;
  struct Event {
    Nanos at;
    uint64_t order;
    uint32_t slot;  // index of a function; kNone: a fiber's wait
    Ticket ticket;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  void Resume(uint32_t index);
  void Yield();
  static void Entry();
  uint32_t TakeFiber();

  Nanos now_ = 0;
  Nanos readings_ = 0;
  uint64_t order_ = 0;
  int64_t events_ = 0;
  std::priority_queue<Event, std::vector<Event>, Later> queue_;
  std::vector<std::function<void()>> functions_;
  std::vector<uint32_t> free_functions_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<uint32_t> free_fibers_;
  std::vector<void*> slabs_;
  size_t live_ = 0;
  uint32_t running_ = kNone;
  ucontext_t main_;
  struct OfCondition;
  std::unique_ptr<OfCondition> conditions_;
};

}  // namespace cairn::simulator
