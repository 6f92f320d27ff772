#include "ps_server/net/call_pool.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/scoped_unlock.h"
#include "ps_server/base/bad_alloc.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// Limits of a task's run while others wait.
constexpr int32_t kShareCalls = 16;
constexpr absl::Duration kShare = absl::Milliseconds(1);
// Extra places for refusals, which take microseconds.
constexpr int32_t kRefusers = 1;
// A thread that has polled serves the task that it found. If serving takes longer than this,
// another thread polls.
constexpr absl::Duration kMaxVacancy = absl::Microseconds(500);
constexpr absl::Duration kTrim = absl::Seconds(1);

}  // namespace

bool CallPool::Slot::MayContinue() {
  if (retry_after_ > absl::ZeroDuration()) return false;
  if (pool_.queued_.load(std::memory_order_relaxed) == 0) return true;
  return ++calls_ < kShareCalls && MonotonicNow() - since_ < kShare;
}

bool CallPool::Slot::PollBriefly(absl::FunctionRef<bool()> await) {
  if (retry_after_ > absl::ZeroDuration() || pool_.queued_.load() > 0) return false;
  if (pool_.lingering_.fetch_add(1) >= pool_.options_.threads) {
    pool_.lingering_.fetch_sub(1);
    return false;
  }
  pool_.Leave(*this);
  bool comes = false;
  bool has_place = false;
  {
    // Also if `await` throws.
    const absl::Cleanup enter = [&] {
      // Without a free place the task queues up like others.
      has_place = pool_.Enter(*this) <= pool_.options_.threads;
      pool_.lingering_.fetch_sub(1);
    };
    comes = await();
  }
  return comes && has_place;
}

void CallPool::Slot::Blocks() { pool_.Leave(*this); }

void CallPool::Slot::Unblocks(WaitFor what) {
  if (what == WaitFor::kPeer && retry_after_ == absl::ZeroDuration()) return pool_.EnterInOrder();
  pool_.Enter(*this);
}

void CallPool::Leave(const Slot& slot) {
  (slot.retry_after() > absl::ZeroDuration() ? refusing_ : running_).fetch_sub(1);
  const bool is_wanted = queued_.load() > 0 || to_refuse_.load() > 0 || entering_.load() > 0;
  if (!is_wanted && polls_.load()) return;
  const absl::MutexLock lock(&mutex_);
  WakeForTasks();
  if (!polls_.load()) WakeOne();
}

int32_t CallPool::Enter(const Slot& slot) {
  return (slot.retry_after() > absl::ZeroDuration() ? refusing_ : running_).fetch_add(1) + 1;
}

void CallPool::EnterInOrder() {
  int32_t running = running_.load();
  while (entering_.load() == 0 && running < options_.threads) {
    if (running_.compare_exchange_weak(running, running + 1)) return;
  }
  const absl::MutexLock lock(&mutex_);
  entering_.fetch_add(1);
  while (running_.load() >= options_.threads) place_free_.Wait(&mutex_);
  running_.fetch_add(1);
  entering_.fetch_sub(1);
}

absl::Status CallPool::Start() {
  const absl::MutexLock lock(&mutex_);
  try {
    watchdog_ = std::thread([this] { RunWatchdog(); });
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start a thread: ", error.what());
  }
  if (StartThread()) return absl::OkStatus();
  return absl::ResourceExhaustedError("cannot start a thread to serve calls");
}

void CallPool::Add(Task* task) {
  const absl::MutexLock lock(&mutex_);
  Enqueue(*task);
  StoreLengths();
  WakeForTasks();
}

void CallPool::Enqueue(Task& task) {
  if (queue_.size() >= options_.max_queued && task.MayBeRefused()) {
    task.retry_after_ = RetryAfter(MonotonicNow());
    refusals_.Append(task);
  } else {
    queue_.Append(task);
  }
}

void CallPool::StoreLengths() {
  queued_.store(queue_.size());
  to_refuse_.store(refusals_.size());
}

// Spreads the retries of refused calls at the rate at which the queue moves, behind the queued
// tasks.
absl::Duration CallPool::RetryAfter(absl::Duration now) {
  const absl::Duration step = std::max(interval_, absl::Microseconds(1));
  const absl::Duration behind = now + step * queue_.size();
  const absl::Duration last = now + absl::Seconds(kMaxRetryAfterSeconds);
  next_return_ = std::min(std::max(next_return_, behind) + step, last);
  return next_return_ - now;
}

CallPool::Task* CallPool::Take(Slot& slot) {
  slot.retry_after_ = absl::ZeroDuration();
  slot.calls_ = 0;
  if (!refusals_.empty() && refusing_.load() < kRefusers) {
    Task& task = refusals_.front();
    refusals_.Remove(task);
    StoreLengths();
    slot.retry_after_ = task.retry_after_;
    refusing_.fetch_add(1);
    return &task;
  }
  if (queue_.empty() || running_.load() + entering_.load() >= options_.threads) return nullptr;
  Task& task = queue_.front();
  queue_.Remove(task);
  StoreLengths();
  running_.fetch_add(1);
  slot.since_ = MonotonicNow();
  if (had_more_) interval_ += (slot.since_ - last_take_ - interval_) / 8;
  last_take_ = slot.since_;
  had_more_ = !queue_.empty();
  return &task;
}

void CallPool::WakeForTasks() {
  const int32_t running = running_.load();
  const int32_t entering = entering_.load();
  if (entering > 0 && running < options_.threads) place_free_.Signal();
  const bool may_run = !queue_.empty() && running + entering < options_.threads;
  if (may_run || (!refusals_.empty() && refusing_.load() < kRefusers)) WakeOne();
}

void CallPool::WakeOne() {
  if (signaled_ + starting_ > 0) return;
  if (idle_ > 0) {
    ++signaled_;
    work_.Signal();
  } else {
    StartThread();  // if it fails, a busy thread takes the work later
  }
}

bool CallPool::StartThread() {
  if (static_cast<int64_t>(threads_.size()) >= options_.max_threads) return false;
  Threads started;  // joins the others once it runs
  try {
    const auto self = started.emplace(started.end());
    *self = std::thread([this, self] { Main(self); });
  } catch (const std::system_error& error) {
    LOG_EVERY_T(ERROR, 1) << options_.name
                          << ": cannot start a thread to serve calls: " << error.what() << "; "
                          << threads_.size() << " run: raise the limit of processes (ulimit -u)";
    return false;
  } catch (const std::bad_alloc&) {
    LOG_EVERY_T(ERROR, 1) << options_.name
                          << ": cannot start a thread to serve calls: " << kNoMemoryText << "; "
                          << threads_.size() << " run";
    return false;
  }
  threads_.splice(threads_.end(), started);
  ++starting_;
  return true;
}

void CallPool::Main(Threads::iterator self) {
  Slot slot(this);
  const ObservedThread observed(&slot);
  const absl::MutexLock lock(&mutex_);
  --starting_;
  for (;;) {
    if (Task* const task = Take(slot)) {
      WakeForTasks();
      if (!polls_.load() && watchdog_sleeps_) watchdog_wakes_.SignalAll();
      {
        const ScopedUnlock unlock(&mutex_);
        task->Run(slot);
      }
      (slot.retry_after() > absl::ZeroDuration() ? refusing_ : running_).fetch_sub(1);
      if (entering_.load() > 0) WakeForTasks();
    } else if (stopping_) {
      break;
    } else if (!polls_.load()) {
      Poll();
    } else if (surplus_ > 0) {
      --surplus_;
      break;
    } else {
      ++idle_;
      work_.Wait(&mutex_);
      --idle_;
      least_idle_ = std::min(least_idle_, idle_);
      signaled_ = std::max(signaled_ - 1, 0);
    }
  }
  ended_.splice(ended_.end(), threads_, self);
  thread_ended_.SignalAll();
}

void CallPool::Poll() {
  polls_.store(true);
  ++polls_begun_;
  Tasks ready;
  {
    const ScopedUnlock unlock(&mutex_);
    source_.Poll(ready);
  }
  polls_.store(false);
  while (!ready.empty()) {
    Task& task = ready.front();
    ready.Remove(task);
    Enqueue(task);
  }
  StoreLengths();
  if (MonotonicNow() - trimmed_ > kTrim) Trim();
}

// Ensures that a thread polls while calls take long. Sleeps while nothing happens.
void CallPool::RunWatchdog() {
  const absl::MutexLock lock(&mutex_);
  for (int64_t seen = -1; !stopping_;) {
    const bool is_same = seen == polls_begun_;
    seen = polls_begun_;
    if (is_same && polls_.load()) {
      watchdog_sleeps_ = true;
      watchdog_wakes_.WaitUntil(&mutex_, Deadline::In(absl::Hours(1)));
      watchdog_sleeps_ = false;
      seen = -1;
      continue;
    }
    if (is_same) WakeOne();
    watchdog_wakes_.WaitUntil(&mutex_, Deadline::In(kMaxVacancy));
  }
}

void CallPool::Trim() {
  trimmed_ = MonotonicNow();
  surplus_ = std::max(least_idle_ - options_.threads, 0);
  for (int32_t i = 0; i < surplus_ && idle_ > signaled_; ++i) {
    ++signaled_;
    work_.Signal();
  }
  least_idle_ = idle_;
  if (ended_.empty()) return;
  Threads ended;
  ended.swap(ended_);
  const ScopedUnlock unlock(&mutex_);
  for (std::thread& thread : ended) thread.join();
}

void CallPool::Stop() {
  Threads ended;
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
    work_.SignalAll();
    watchdog_wakes_.SignalAll();
    source_.Interrupt();
    while (!threads_.empty()) thread_ended_.Wait(&mutex_);
    ended.swap(ended_);
  }
  for (std::thread& thread : ended) thread.join();
  if (watchdog_.joinable()) watchdog_.join();
}

CallPoolStatistics CallPool::statistics() const {
  const absl::MutexLock lock(&mutex_);
  return {.queued = queue_.size() + refusals_.size(),
          .busy = running_.load() + refusing_.load(),
          .threads = static_cast<int64_t>(threads_.size())};
}

}  // namespace cairn
