#include "worker/strategy/replica_threads.h"

#include <utility>

#include "common/catch_exceptions.h"
#include "common/scoped_unlock.h"

namespace cairn {

ReplicaThreads::~ReplicaThreads() {
  std::vector<std::unique_ptr<Worker>> workers;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::unique_ptr<Worker>& worker : workers_) {
      worker->stop = true;
      worker->wake.Signal();
    }
    workers.swap(workers_);
  }
  for (const std::unique_ptr<Worker>& worker : workers) worker->thread.join();
}

absl::Status ReplicaThreads::Start(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (idle_.empty()) {
    // Reserved before the thread starts, because the thread must get its entry in workers_ and adds
    // itself to idle_.
    workers_.reserve(workers_.size() + 1);
    idle_.reserve(workers_.size() + 1);
    auto made = std::make_unique<Worker>();
    Worker* const worker = made.get();
    worker->task = std::move(task);
    const absl::Status started = CallCatching("starting the thread of a replica", [&] {
      worker->thread = std::thread([this, worker] { Work(worker); });
    });
    if (!started.ok()) return absl::ResourceExhaustedError(started.message());
    workers_.push_back(std::move(made));
    return absl::OkStatus();
  }
  Worker* worker = idle_.back();
  idle_.pop_back();
  worker->task = std::move(task);
  worker->wake.Signal();
  return absl::OkStatus();
}

void ReplicaThreads::Work(Worker* worker) {
  absl::MutexLock lock(&mutex_);
  while (true) {
    // An idle thread waits as long as its strategy lives.
    while (worker->task == nullptr && !worker->stop) worker->wake.Wait(&mutex_);
    if (worker->task == nullptr) return;
    {
      const std::function<void()> task = std::exchange(worker->task, nullptr);
      const ScopedUnlock unlock(&mutex_);
      task();
    }
    idle_.push_back(worker);
  }
}

}  // namespace cairn
