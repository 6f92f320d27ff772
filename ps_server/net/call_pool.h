// Threads that serve connections: so many calls run at a time, whatever the number of connections;
// calls that wait do not count, and calls beyond a queue are turned away.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/blocking.h"
#include "common/monotonic_cond_var.h"

namespace cairn {

struct CallPoolOptions {
  std::string name;         // for messages
  int32_t threads = 1;      // tasks that run at a time, those that wait (common/blocking.h) apart
  int32_t max_threads = 1;  // of all kinds
  int32_t max_queued = 1;   // tasks that may be refused, waiting for a thread
};

// Of this moment.
struct CallPoolStatistics {
  int64_t queued = 0;   // tasks that wait for a thread
  int64_t busy = 0;     // threads that run a task which does not wait
  int64_t threads = 0;  // busy, waiting and idle ones
};

// Tasks come from a Source, which one thread at a time polls: the one that finds something serves
// it itself, so a call wakes one thread, as it would with a thread a connection. Waking another one
// costs more than a small call.
//
// A task that waits gives its place to another one. After a wait inside the engine it goes on at
// once, for what it holds meanwhile (a stripe, a slot) may be what the others need: for a moment
// more than `threads` run. After a wait for its peer it goes on when there is a place. So no number
// of waiting calls keeps out the one that they wait for.
//
// Thread safety: every method may be called from several threads at once.
class CallPool {
 public:
  class Slot;
  // What is served: a connection. In the pool at most once at a time.
  class Task {
   public:
    virtual ~Task() = default;
    // On a thread of the pool. May end with another Add of this task, or its destruction.
    virtual void Run(Slot& slot) = 0;
    // Whether a full queue turns it away. Does not change while it is in the pool.
    virtual bool MayBeRefused() const = 0;
  };

  // Where tasks come from, besides Add. Called by one thread at a time, but for Interrupt.
  class Source {
   public:
    virtual ~Source() = default;
    // Waits for tasks, not for long, and appends them to `ready`.
    virtual void Poll(std::vector<Task*>& ready) = 0;
    // Poll is to return.
    virtual void Interrupt() = 0;
  };

  // A task's time on a thread; used by that thread alone.
  class Slot : private BlockingObserver {
   public:
    // Above zero: the queue is full. The next call is to be refused, and welcome after this time.
    absl::Duration retry_after() const { return retry_after_; }
    // After a call: whether the task may serve another one that is here already. False where others
    // wait and it has had its share.
    bool GoesOn();
    // Where nobody needs the thread: `await`, which waits a moment for another call of the task and
    // says whether one comes. False: not now.
    bool PollBriefly(absl::FunctionRef<bool()> await);

   private:
    friend class CallPool;
    explicit Slot(CallPool* pool) : pool_(*pool) {}
    void Blocks() override;
    void Unblocks(WaitFor what) override;

    CallPool& pool_;
    absl::Duration retry_after_;
    absl::Duration since_;  // on the monotonic clock
    int32_t calls_ = 0;
  };

  // `source` outlives this. More threads are started as they are needed.
  CallPool(CallPoolOptions options, Source* source)
      : options_(std::move(options)), source_(*source) {}
  ~CallPool() { Stop(); }
  CallPool(const CallPool&) = delete;
  CallPool& operator=(const CallPool&) = delete;

  // Begins to poll. kResourceExhausted: no threads.
  absl::Status Start();
  // `task` runs once, after those that are there, but for refusals.
  void Add(Task* task);
  // When no task is in the pool any more. Joins all threads. Idempotent.
  void Stop();

  CallPoolStatistics statistics() const;

 private:
  using Threads = std::list<std::thread>;

  void Main(Threads::iterator self);
  void Keep();
  void Poll(std::vector<Task*>& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends threads that had nothing to do for a while and are more than `threads`.
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(absl::Span<Task* const> tasks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next task that may run now, with its slot; null: none.
  Task* Take(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Where a task may run and no thread is on its way to it: calls one, which calls the next.
  void WakeForTasks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls a thread where none is on its way.
  void WakeOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the place of a slot to another task, and takes it again: a pair of them around every
  // wait, so without the lock where nobody waits for the place.
  void Leave(const Slot& slot) ABSL_LOCKS_EXCLUDED(mutex_);
  // How many have places of that kind now.
  int32_t Enter(const Slot& slot);
  // Waits for a place of those that serve, before tasks that have not begun.
  void EnterInOrder() ABSL_LOCKS_EXCLUDED(mutex_);
  // When a call that is refused now may come back.
  absl::Duration RetryAfter(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CallPoolOptions options_;
  Source& source_;
  std::thread keeper_;
  // Changed under the lock but for running_ and refusing_, whose changes are followed by a look at
  // the queues, as changes of those are by a look at them: so of a task and a place one finds the
  // other.
  std::atomic<int64_t> queued_{0};     // queue_.size()
  std::atomic<int64_t> to_refuse_{0};  // refusals_.size()
  std::atomic<bool> polls_{false};     // a thread is in Source::Poll
  std::atomic<int32_t> running_{0};    // turns that have a place
  std::atomic<int32_t> refusing_{0};
  std::atomic<int32_t> lingering_{0};
  std::atomic<int32_t> entering_{0};  // threads in EnterInOrder
  mutable absl::Mutex mutex_;
  absl::CondVar work_;
  absl::CondVar place_free_;
  absl::CondVar thread_ended_;
  std::deque<Task*> queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<Task*, absl::Duration>> refusals_ ABSL_GUARDED_BY(mutex_);
  int32_t idle_ ABSL_GUARDED_BY(mutex_) = 0;        // threads that wait for work
  int32_t signaled_ ABSL_GUARDED_BY(mutex_) = 0;    // of those, called and not back yet
  int32_t starting_ ABSL_GUARDED_BY(mutex_) = 0;    // threads that have not looked for work yet
  int32_t least_idle_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last Trim
  int32_t surplus_ ABSL_GUARDED_BY(mutex_) = 0;     // threads that are to end
  int64_t polls_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  bool keeper_rests_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar keeper_wakes_;
  absl::Duration trimmed_ ABSL_GUARDED_BY(mutex_);  // when, on the monotonic clock
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Threads threads_ ABSL_GUARDED_BY(mutex_);
  Threads ended_ ABSL_GUARDED_BY(mutex_);  // to be joined

  // How fast the queue moves: between two tasks taken from it while others waited.
  absl::Duration interval_ ABSL_GUARDED_BY(mutex_);
  absl::Duration last_take_ ABSL_GUARDED_BY(mutex_);
  bool had_more_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration next_return_ ABSL_GUARDED_BY(mutex_);  // of refused calls, the last one's
};

}  // namespace cairn
