// The result of a scheduled function, which may not have run yet.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/deadline.h"
#include "worker/strategy/value.h"

namespace cairn {

class ScheduledCall;

// Thread safety: every method may be called from several threads at once. Copies are of one result.
class RemoteValue {
 public:
  enum class State {
    kNotReady,
    kReady,
    kAborted,  // it failed or was cancelled
  };
  State state() const;
  // Waits for the function to end. Its value, or its error. kCancelled: another one failed, or the
  // coordinator ended, before this one had a result; it may have run in part. Schedule it again.
  // kDeadlineExceeded.
  absl::StatusOr<Value> Fetch(Deadline deadline) const;

 private:
  friend class ClusterCoordinator;
  explicit RemoteValue(std::shared_ptr<ScheduledCall> call) : call_(std::move(call)) {}

  std::shared_ptr<ScheduledCall> call_;
};

}  // namespace cairn
