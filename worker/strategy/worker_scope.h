// Which of a parameter server strategy's workers the calling thread computes for.
#pragma once

#include <cstdint>
#include <optional>

#include "worker/strategy/cancellation.h"

namespace cairn {

// Empty outside the functions that a coordinator calls; their replicas' threads have it too.
std::optional<int32_t> CurrentWorker();

// While it lives, CurrentWorker() is `worker` and CurrentCancellation() is `token` in this thread.
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
