// A thread pool that serves connections. A fixed number of calls run at a time, regardless of the
// number of connections. Blocked calls do not count, and calls that find the queue full are
// refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/blocking.h"
#include "common/monotonic_cond_var.h"

namespace cairn {

struct CallPoolOptions {
  std::string name;         // for messages
  int32_t threads = 1;      // running tasks at a time, without blocked ones (common/blocking.h)
  int32_t max_threads = 1;  // all threads, including blocked and idle ones
  int32_t max_queued = 1;   // queued tasks that may be refused
};

// Current values.
struct CallPoolStatistics {
  int64_t queued = 0;   // tasks waiting for a thread
  int64_t busy = 0;     // threads running a task that is not blocked
  int64_t threads = 0;  // busy, blocked and idle threads
};

// Tasks come from a Source, which one thread at a time polls. A thread that finds a task serves it
// itself, so a call wakes one thread, as with one thread per connection. Waking another thread
// costs more than a small call.
//
// A blocked task frees its place for another task. After a wait inside the engine it continues at
// once, even if more than `threads` then run for a moment, because other tasks may need what it
// holds (a stripe, a slot). After a wait for its peer it waits for a free place. So blocked calls,
// however many, never keep out the call that they wait for.
//
// Thread safety: every method may be called from several threads at once.
class CallPool {
 public:
  class Slot;
  class Tasks;
  // A unit of work: a connection. At most once in the pool at a time.
  class Task {
   public:
    Task() = default;
    virtual ~Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    // Runs on a thread of the pool. May end by adding the task again, or by destroying it. Throws
    // nothing.
    virtual void Run(Slot& slot) = 0;
    // Whether a full queue refuses the task. Constant while the task is in the pool.
    virtual bool MayBeRefused() const = 0;

   private:
    friend class CallPool;
    friend class Tasks;
    std::list<Task*> node_ = {this};  // empty while the task is in a Tasks
    const std::list<Task*>::iterator place_ = node_.begin();
    absl::Duration retry_after_;  // of a task in refusals_
  };

  // Tasks in order. Each task brings its own node, so that no change of a list needs memory, which
  // the system could refuse to threads that serve many callers.
  class Tasks {
   public:
    bool empty() const { return tasks_.empty(); }
    int64_t size() const { return static_cast<int64_t>(tasks_.size()); }
    Task& front() const { return *tasks_.front(); }
    std::list<Task*>::const_iterator begin() const { return tasks_.begin(); }
    std::list<Task*>::const_iterator end() const { return tasks_.end(); }
    // Appends a task that is in no list.
    void Append(Task& task) { tasks_.splice(tasks_.end(), task.node_); }
    // Removes a task of this list.
    void Remove(Task& task) { task.node_.splice(task.node_.end(), tasks_, task.place_); }

   private:
    std::list<Task*> tasks_;
  };

  // A source of tasks besides Add. Called by one thread at a time, except Interrupt.
  class Source {
   public:
    virtual ~Source() = default;
    // Waits briefly for tasks and appends them to `ready`. Throws nothing.
    virtual void Poll(Tasks& ready) = 0;
    // Makes Poll return.
    virtual void Interrupt() = 0;
  };

  // A task's run on a thread; used only by that thread.
  class Slot : private BlockingObserver {
   public:
    // Above zero: the queue is full, and the next call must be refused; it may be retried after
    // this time.
    absl::Duration retry_after() const { return retry_after_; }
    // Call after each call: whether the task may serve another call that has arrived. False where
    // other tasks wait and this one has used its share.
    bool MayContinue();
    // If no other task needs the thread, calls `await`, which waits briefly for another call of the
    // task, and returns its result; else false.
    bool PollBriefly(absl::FunctionRef<bool()> await);

   private:
    friend class CallPool;
    explicit Slot(CallPool* pool) : pool_(*pool) {}
    void Blocks() override;
    void Unblocks(WaitFor what) override;

    CallPool& pool_;
    absl::Duration retry_after_;
    absl::Duration since_;  // start, on the monotonic clock
    int32_t calls_ = 0;
  };

  // `source` outlives the pool. Starts threads as they are needed.
  CallPool(CallPoolOptions options, Source* source)
      : options_(std::move(options)), source_(*source) {}
  ~CallPool() { Stop(); }
  CallPool(const CallPool&) = delete;
  CallPool& operator=(const CallPool&) = delete;

  // Starts polling. kResourceExhausted: no thread could be started.
  absl::Status Start();
  // Runs `task` once, after the queued tasks. Tasks to be refused run out of order.
  void Add(Task* task);
  // Joins all threads. No task may be in the pool. Idempotent.
  void Stop();

  CallPoolStatistics statistics() const;

 private:
  using Threads = std::list<std::thread>;

  void Main(Threads::iterator self);
  void RunWatchdog();
  void Poll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends threads above `threads` that have been idle for a while.
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds a task that is in no list. StoreLengths must follow.
  void Enqueue(Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StoreLengths() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next task that may run now; sets its slot. Null: none.
  Task* Take(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // If a task may run and no thread is being woken for it, wakes one, which wakes the next.
  void WakeForTasks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Wakes a thread, unless one is being woken already.
  void WakeOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Leave frees a slot's place for another task, and Enter takes it again. The pair surrounds every
  // wait, so it takes no lock unless a task waits for the place.
  void Leave(const Slot& slot) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns how many slots of that kind have places now.
  int32_t Enter(const Slot& slot);
  // Waits for a place to serve; takes precedence over tasks that have not started.
  void EnterInOrder() ABSL_LOCKS_EXCLUDED(mutex_);
  // When a call that is refused now may be retried.
  absl::Duration RetryAfter(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CallPoolOptions options_;
  Source& source_;
  std::thread watchdog_;
  // Changed under the lock, except running_ and refusing_. Each change of those two is followed by
  // a check of the queues, and each change of the queues by a check of those two, so that a task
  // and a free place always find each other.
  std::atomic<int64_t> queued_{0};     // queue_.size()
  std::atomic<int64_t> to_refuse_{0};  // refusals_.size()
  std::atomic<bool> polls_{false};     // a thread is in Source::Poll
  std::atomic<int32_t> running_{0};    // slots that have a place
  std::atomic<int32_t> refusing_{0};
  std::atomic<int32_t> lingering_{0};
  std::atomic<int32_t> entering_{0};  // threads in EnterInOrder
  mutable absl::Mutex mutex_;
  absl::CondVar work_;
  absl::CondVar place_free_;
  absl::CondVar thread_ended_;
  Tasks queue_ ABSL_GUARDED_BY(mutex_);
  Tasks refusals_ ABSL_GUARDED_BY(mutex_);
  int32_t idle_ ABSL_GUARDED_BY(mutex_) = 0;        // threads waiting for work
  int32_t signaled_ ABSL_GUARDED_BY(mutex_) = 0;    // idle threads that are being woken
  int32_t starting_ ABSL_GUARDED_BY(mutex_) = 0;    // new threads that have not looked for work yet
  int32_t least_idle_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last Trim
  int32_t surplus_ ABSL_GUARDED_BY(mutex_) = 0;     // threads that must end
  int64_t polls_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  bool watchdog_sleeps_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar watchdog_wakes_;
  absl::Duration trimmed_ ABSL_GUARDED_BY(mutex_);  // time of the last Trim, on the monotonic clock
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Threads threads_ ABSL_GUARDED_BY(mutex_);
  Threads ended_ ABSL_GUARDED_BY(mutex_);  // ended threads, not joined yet

  // Average time between two tasks taken from the queue while others waited.
  absl::Duration interval_ ABSL_GUARDED_BY(mutex_);
  absl::Duration last_take_ ABSL_GUARDED_BY(mutex_);
  bool had_more_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration next_return_ ABSL_GUARDED_BY(mutex_);  // retry time of the last refused call
};

}  // namespace cairn
