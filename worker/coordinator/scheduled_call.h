// A scheduled function, from Schedule to its result.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/deadline.h"
#include "common/monotonic_cond_var.h"
#include "worker/strategy/cancellation.h"
#include "worker/strategy/value.h"
#include "worker/strategy/value_function.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class ScheduledCall {
 public:
  using Function = ValueFunction<absl::Span<const Value>>;

  ScheduledCall(Function function, std::vector<Value> args)
      : function_(std::move(function)), args_(std::move(args)) {}

  absl::StatusOr<Value> Call() const { return function_.Call("the scheduled function", args_); }
  CancellationToken token() const { return cancellation_.token(); }

  // False, without any change, if the call already has a result.
  bool Finish(absl::StatusOr<Value> result) {
    absl::MutexLock lock(&mutex_);
    if (result_.has_value()) return false;
    result_ = std::move(result);
    finished_.SignalAll();
    return true;
  }
  // Asks the function to stop. Its result becomes kCancelled unless it already has one.
  void Cancel(absl::string_view why) {
    Finish(absl::CancelledError(why));
    cancellation_.Cancel(absl::CancelledError(why));
  }
  // Empty until the call has ended.
  std::optional<absl::StatusOr<Value>> result() const {
    absl::MutexLock lock(&mutex_);
    return result_;
  }
  // False if the call has not ended by `deadline`.
  bool WaitUntilFinished(Deadline deadline) const {
    absl::MutexLock lock(&mutex_);
    while (!result_.has_value() && !deadline.Expired()) finished_.WaitUntil(&mutex_, deadline);
    return result_.has_value();
  }

  // Number of workers lost while calling this function. Used by one thread at a time.
  int losses = 0;

 private:
  const Function function_;
  const std::vector<Value> args_;
  CancellationSource cancellation_;
  mutable absl::Mutex mutex_;
  mutable MonotonicCondVar finished_;
  std::optional<absl::StatusOr<Value>> result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
