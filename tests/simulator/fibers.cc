#include "tests/simulator/fibers.h"

#include <glog/logging.h>
#include <sys/mman.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/interruption.h"

namespace cairn::simulator {
namespace {

// Enough for the deepest call chain, which formats an error inside a service call inside a
// snapshot.
constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kStacksPerSlab = 64;
// Stored at the far end of a stack; overwriting it means a stack overflow.
constexpr uint64_t kCanary = 0x5ca1ab1e0ddba11u;

Scheduler* current = nullptr;

}  // namespace

struct Scheduler::Fiber {
  ucontext_t context;
  std::byte* stack = nullptr;
  std::function<void()> body;
  const char* name = "";
  uint64_t wait = 0;  // current wait; 0: none
  bool woken = false;
  Interruption* interruption = nullptr;  // the innermost scope, while another fiber runs
};

struct Scheduler::OfCondition {
  absl::flat_hash_map<const void*, std::vector<Ticket>> waiting;
};

Scheduler::Scheduler() : conditions_(std::make_unique<OfCondition>()) {
  CHECK(current == nullptr) << "another scheduler exists";
  current = this;
}

Scheduler::~Scheduler() {
  current = nullptr;
  for (void* slab : slabs_) munmap(slab, kStackBytes * kStacksPerSlab);
}

Scheduler& Scheduler::Current() {
  CHECK(current != nullptr) << "no scheduler exists";
  return *current;
}

bool Scheduler::InFiber() { return current != nullptr && current->running_ != kNone; }

void Scheduler::At(Nanos when, std::function<void()> event) {
  uint32_t slot = 0;
  if (free_functions_.empty()) {
    slot = static_cast<uint32_t>(functions_.size());
    functions_.push_back(std::move(event));
  } else {
    slot = free_functions_.back();
    free_functions_.pop_back();
    functions_[slot] = std::move(event);
  }
  queue_.push({.at = std::max(when, now_), .order = ++order_, .slot = slot, .ticket = {}});
}

uint32_t Scheduler::TakeFiber() {
  if (free_fibers_.empty()) {
    void* const slab = mmap(nullptr, kStackBytes * kStacksPerSlab, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PCHECK(slab != MAP_FAILED) << "no memory for stacks";
    slabs_.push_back(slab);
    for (size_t i = 0; i < kStacksPerSlab; ++i) {
      fibers_.push_back(std::make_unique<Fiber>());
      fibers_.back()->stack = static_cast<std::byte*>(slab) + i * kStackBytes;
      *reinterpret_cast<uint64_t*>(fibers_.back()->stack) = kCanary;
      free_fibers_.push_back(static_cast<uint32_t>(fibers_.size() - 1));
    }
  }
  const uint32_t index = free_fibers_.back();
  free_fibers_.pop_back();
  return index;
}

void Scheduler::Spawn(const char* name, std::function<void()> body) {
  const uint32_t index = TakeFiber();
  Fiber& fiber = *fibers_[index];
  fiber.body = std::move(body);
  fiber.name = name;
  PCHECK(getcontext(&fiber.context) == 0);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &Scheduler::Entry, 0);
  ++live_;
  fiber.wait = ++order_;
  queue_.push({.at = now_, .order = order_, .slot = kNone, .ticket = {index, fiber.wait}});
}

void Scheduler::Entry() {
  Scheduler& scheduler = *current;
  Fiber& fiber = *scheduler.fibers_[scheduler.running_];
  fiber.body();
  fiber.body = nullptr;
  --scheduler.live_;
  scheduler.free_fibers_.push_back(scheduler.running_);
  scheduler.Yield();  // never resumes
}

void Scheduler::Resume(uint32_t index) {
  running_ = index;
  Fiber& fiber = *fibers_[index];
  Interruption* const outer = Interruption::Exchange(fiber.interruption);
  PCHECK(swapcontext(&main_, &fiber.context) == 0);
  fiber.interruption = Interruption::Exchange(outer);
  CHECK_EQ(*reinterpret_cast<uint64_t*>(fiber.stack), kCanary)
      << "fiber " << fiber.name << " needs a larger stack";
  running_ = kNone;
}

void Scheduler::Yield() { PCHECK(swapcontext(&fibers_[running_]->context, &main_) == 0); }

bool Scheduler::Run(Nanos limit, const std::function<bool()>& done) {
  while (!queue_.empty() && queue_.top().at <= limit) {
    const Event event = queue_.top();
    queue_.pop();
    if (event.slot == kNone && fibers_[event.ticket.fiber]->wait != event.ticket.wait) continue;
    if (event.at > now_) {
      now_ = event.at;
      readings_ = 0;
    }
    ++events_;
    if (event.slot == kNone) {
      fibers_[event.ticket.fiber]->wait = 0;
      Resume(event.ticket.fiber);
    } else {
      const std::function<void()> function = std::move(functions_[event.slot]);
      functions_[event.slot] = nullptr;
      free_functions_.push_back(event.slot);
      function();
    }
    if (done()) return true;
  }
  return done();
}

Ticket Scheduler::Prepare() {
  Fiber& fiber = *fibers_[running_];
  fiber.wait = ++order_;
  fiber.woken = false;
  return {running_, fiber.wait};
}

bool Scheduler::Wait(const Ticket& ticket, Nanos until) {
  Fiber& fiber = *fibers_[running_];
  CHECK(ticket.fiber == running_) << "another fiber's ticket";
  if (!fiber.woken && until != kForever) {
    queue_.push({.at = std::max(until, now_), .order = ++order_, .slot = kNone, .ticket = ticket});
  }
  Yield();
  return fiber.woken;
}

void Scheduler::Wake(const Ticket& ticket) {
  Fiber& fiber = *fibers_[ticket.fiber];
  if (fiber.wait != ticket.wait || fiber.woken) return;
  fiber.woken = true;
  queue_.push({.at = now_, .order = ++order_, .slot = kNone, .ticket = ticket});
}

void Scheduler::Sleep(Nanos duration) { Wait(Prepare(), now_ + std::max<Nanos>(duration, 0)); }

bool Scheduler::WaitOn(const void* condition, Nanos until) {
  const Ticket ticket = Prepare();
  conditions_->waiting[condition].push_back(ticket);
  return Wait(ticket, until);
}

void Scheduler::WakeAll(const void* condition) {
  const auto found = conditions_->waiting.find(condition);
  if (found == conditions_->waiting.end()) return;
  const std::vector<Ticket> tickets = std::move(found->second);
  conditions_->waiting.erase(found);
  for (const Ticket& ticket : tickets) Wake(ticket);
}

}  // namespace cairn::simulator
