// Threads that help with work which comes in pieces.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// Started when there is first something to share. Thread safety: Run may be called, and Jobs made,
// by several threads at once; they share the helpers.
class SideThreads {
 public:
  // At most `count` helpers; 0: whoever asks does it all.
  explicit SideThreads(size_t count) : count_(count) {}
  ~SideThreads();
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;

  // Calls work(0) … work(pieces - 1), each once, on this thread and on helpers that have nothing
  // else to do. Returns when all have returned. Never waits for a helper to become free, nor needs
  // one. `work` does not throw.
  void Run(size_t pieces, absl::FunctionRef<void(size_t piece)> work);

  // The same for pieces that come one after the other: helpers take them while whoever adds them
  // goes on with something else. Thread safety: none.
  class Job {
   public:
    // `side` outlives it. `work` does not throw, nor does it use the job.
    Job(SideThreads& side, std::function<void(size_t piece)> work);
    // Waits for the pieces that helpers have begun. Others are left undone.
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    // So many more, numbered after those before.
    void Add(size_t pieces) { Add(pieces, pieces); }
    // Does those that nobody has begun, and returns when all have returned.
    void Finish();

   private:
    friend class SideThreads;
    // Wakes so many helpers at most.
    void Add(size_t pieces, size_t helpers);
    // While there are pieces that nobody has begun.
    void Help() ABSL_EXCLUSIVE_LOCKS_REQUIRED(side_.mutex_);

    SideThreads& side_;
    const std::function<void(size_t piece)> work_;
    size_t pieces_ ABSL_GUARDED_BY(side_.mutex_) = 0;
    size_t next_ ABSL_GUARDED_BY(side_.mutex_) = 0;
    size_t helpers_ ABSL_GUARDED_BY(side_.mutex_) = 0;  // at work on it
    const std::list<Job*>::iterator place_;             // the last: from it on helpers see the job
  };

 private:
  std::list<Job*>::iterator Enlist(Job* job);
  void Main();
  // As many as there is work for.
  void StartSome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t count_;
  absl::Mutex mutex_;
  absl::CondVar wanted_;
  absl::CondVar helped_;
  std::list<Job*> jobs_ ABSL_GUARDED_BY(mutex_);
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
