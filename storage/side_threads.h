// Threads that help with work which comes in pieces.
#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// Started when there is first something to share. Thread safety: Run may be called from several
// threads at once; they share the helpers.
class SideThreads {
 public:
  // At most `count` helpers; 0: whoever calls Run does it all.
  explicit SideThreads(size_t count) : count_(count) {}
  ~SideThreads();
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;

  // Calls work(0) … work(pieces - 1), each once, on this thread and on helpers that have nothing
  // else to do. Returns when all have returned. Never waits for a helper to become free, nor needs
  // one. `work` does not throw.
  void Run(size_t pieces, absl::FunctionRef<void(size_t piece)> work);

 private:
  struct Job {
    Job(size_t job_pieces, absl::FunctionRef<void(size_t piece)> job_work)
        : pieces(job_pieces), work(job_work) {}
    void Help();

    const size_t pieces;
    const absl::FunctionRef<void(size_t piece)> work;
    std::atomic<size_t> next{0};
    size_t helpers = 0;  // at work on it; under the lock
  };

  void Main();
  // As many as there is work for.
  void StartSome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t count_;
  absl::Mutex mutex_;
  absl::CondVar wanted_;
  absl::CondVar helped_;
  std::list<Job*> jobs_ ABSL_GUARDED_BY(mutex_);  // that may have pieces nobody has begun
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
