// One scheduled function from Schedule to its result.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "common/thrown.h"
#include "worker/strategy/value.h"

namespace cairn {

class ScheduledCall {
 public:
  using Function = std::function<absl::StatusOr<Value>(absl::Span<const Value> args)>;

  ScheduledCall(Function function, std::vector<Value> args)
      : function_(std::move(function)), args_(std::move(args)) {}

  absl::StatusOr<Value> Call() const {
    return CatchThrown("the scheduled function", [this] { return function_(args_); });
  }

  // Once.
  void Finish(absl::StatusOr<Value> result) {
    absl::MutexLock lock(&mutex_);
    result_ = std::move(result);
    finished_.SignalAll();
  }
  // Empty while it has not ended.
  std::optional<absl::StatusOr<Value>> result() const {
    absl::MutexLock lock(&mutex_);
    return result_;
  }
  // False: it had not ended by `deadline`.
  bool WaitUntilFinished(Deadline deadline) const {
    absl::MutexLock lock(&mutex_);
    while (!result_.has_value() && !deadline.Expired()) finished_.WaitUntil(&mutex_, deadline);
    return result_.has_value();
  }

  // Used by one thread at a time: workers that were lost while they called it.
  int losses = 0;

 private:
  const Function function_;
  const std::vector<Value> args_;
  mutable absl::Mutex mutex_;
  mutable MonotonicCondVar finished_;
  std::optional<absl::StatusOr<Value>> result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
