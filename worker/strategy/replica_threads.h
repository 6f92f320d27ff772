// Threads that run replica functions, reused from one Run to the next.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// Thread safety: Start may be called from several threads at once.
class ReplicaThreads {
 public:
  ReplicaThreads() = default;
  // Waits for all started tasks.
  ~ReplicaThreads();

  // Calls `task` in its own thread, an idle one if possible. kResourceExhausted: the system cannot
  // create another thread.
  absl::Status Start(std::function<void()> task);

 private:
  struct Worker {
    std::thread thread;
    absl::CondVar wake;
    std::function<void()> task;  // empty: idle
    bool stop = false;
  };
  void Work(Worker* worker);

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Worker>> workers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Worker*> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
