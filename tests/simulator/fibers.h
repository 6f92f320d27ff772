// Simulated time, and threads that live in it: code that blocks runs on a stack of its own, and
// gives way to whatever comes next where a thread would wait. One thread runs everything, so a
// run depends on nothing but what is scheduled.
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

// Nanoseconds since the run began.
using Nanos = int64_t;
inline constexpr Nanos kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;
inline constexpr Nanos kForever = INT64_MAX;

// What a fiber waits for; given to Scheduler::Wake. A ticket that was waited for once is of no use
// again, so whoever comes late wakes nobody.
struct Ticket {
  uint32_t fiber = 0;
  uint64_t wait = 0;
};

// Thread safety: none. At most one exists at a time; the replaced clock and condition variables
// (replaced_waits.cc) are those of the one that exists.
class Scheduler {
 public:
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  static Scheduler& Current();

  Nanos now() const { return now_; }
  // The clock as it is read: every reading takes a little, so no two are equal.
  Nanos ReadClock() { return now_ + ++readings_; }
  int64_t events() const { return events_; }

  // Events of one moment run in the order in which they were scheduled.
  void At(Nanos when, std::function<void()> event);
  void In(Nanos delay, std::function<void()> event) { At(now_ + delay, std::move(event)); }
  // `body` begins as an event of this moment. `name`: a literal, for stuck ones.
  void Spawn(const char* name, std::function<void()> body);

  // Runs events until `done` holds after one, or none is due by `limit`; true where it is done.
  bool Run(Nanos limit, const std::function<bool()>& done);

  // In a fiber.
  static bool InFiber();
  Ticket Prepare();
  // Returns after Wake(ticket), or once `until` has come; true: it was woken.
  bool Wait(const Ticket& ticket, Nanos until);
  void Sleep(Nanos duration);
  // From anywhere: the fiber goes on as an event of this moment.
  void Wake(const Ticket& ticket);

  // Waits of code that knows condition variables only, by their address.
  bool WaitOn(const void* condition, Nanos until);
  void WakeAll(const void* condition);

  size_t fibers() const { return live_; }

 private:
  struct Fiber;
  struct Event {
    Nanos at;
    uint64_t order;
    uint32_t slot;  // of a function; kNone: the wait of a fiber
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
