// Helper threads for work that is divided into pieces.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// Threads are started when there is work to share for the first time. Thread safety: several
// threads may call Run and create Jobs at once; they share the helpers.
class HelperPool {
 public:
  // At most `count` helpers; 0: the calling thread does all the work.
  explicit HelperPool(size_t count) : count_(count) {}
  ~HelperPool();
  HelperPool(const HelperPool&) = delete;
  HelperPool& operator=(const HelperPool&) = delete;

  // Calls work(0) … work(pieces - 1), each once, on this thread and on idle helpers. Returns when
  // all calls have returned. Never waits for a helper to become free, and does not need one. An
  // exception of `work`, on whichever thread, drops the pieces that have not begun and is thrown.
  void Run(size_t pieces, absl::FunctionRef<void(size_t piece)> work);

  // Runs pieces that are added one after the other: helpers process them while the adding thread
  // does other work. Thread safety: none.
  class Job {
   public:
    // `side` must outlive the job. `work` must not use the job.
    Job(HelperPool& side, std::function<void(size_t piece)> work);
    // Waits for the pieces that helpers have begun, and drops the others.
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    // Adds `pieces` pieces, numbered after the previous ones.
    void Add(size_t pieces) { Add(pieces, pieces); }
    // Processes the pieces that no helper has begun, and returns when all pieces have returned.
    // Exceptions as in Run.
    void Finish();

   private:
    friend class HelperPool;
    // Wakes at most `helpers` helpers.
    void Add(size_t pieces, size_t helpers);
    // Processes pieces until all have been begun.
    void Help() ABSL_EXCLUSIVE_LOCKS_REQUIRED(side_.mutex_);

    HelperPool& side_;
    const std::function<void(size_t piece)> work_;
    size_t pieces_ ABSL_GUARDED_BY(side_.mutex_) = 0;
    size_t next_ ABSL_GUARDED_BY(side_.mutex_) = 0;
    size_t helpers_ ABSL_GUARDED_BY(side_.mutex_) = 0;         // working on this job
    std::exception_ptr thrown_ ABSL_GUARDED_BY(side_.mutex_);  // on a helper
    const std::list<Job*>::iterator place_;  // last: makes the job visible to helpers
  };

 private:
  std::list<Job*>::iterator Enlist(Job* job);
  void Main();
  // Starts threads if there is work for them.
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
