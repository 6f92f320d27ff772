// The result of a scheduled function, which may not have run yet.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/deadline.h"
#include "worker/strategy/value.h"

namespace cairn {

class ScheduledCall;

// Thread safety: every method may be called from several threads at once. Copies share one result.
class RemoteValue {
 public:
  enum class State {
    kNotReady,
    kReady,
    kAborted,  // the function failed or was cancelled
  };
  State state() const;
  // Waits for the function to end and returns its value or error. kCancelled: another function
  // failed, or the coordinator ended, before this function had a result; it may have run partly.
  // Schedule it again. kDeadlineExceeded: the function has not ended.
  absl::StatusOr<Value> Fetch(Deadline deadline) const;

 private:
  friend class ClusterCoordinator;
  explicit RemoteValue(std::shared_ptr<ScheduledCall> call) : call_(std::move(call)) {}

  std::shared_ptr<ScheduledCall> call_;
};

}  // namespace cairn
