// The worker of a parameter server strategy that the calling thread computes for.
#pragma once

#include <cstdint>
#include <optional>

#include "worker/strategy/cancellation.h"

namespace cairn {

// Empty outside functions that a coordinator calls. Set also in the threads of their replicas.
std::optional<int32_t> CurrentWorker();

// During its lifetime, CurrentWorker() is `worker` and CurrentCancellation() is `token` in this
// thread.
class WorkerScope {
 public:
  explicit WorkerScope(std::optional<int32_t> worker, CancellationToken token = {});
  ~WorkerScope();
  WorkerScope(const WorkerScope&) = delete;
  WorkerScope& operator=(const WorkerScope&) = delete;

 private:
  const std::optional<int32_t> worker_before_;
  const CancellationToken token_before_;
};

}  // namespace cairn
