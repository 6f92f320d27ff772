#include "worker/client/delivery/client_gate.h"

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {

absl::Status ClientGate::Check(absl::string_view what, Deadline deadline,
                               absl::string_view late) const {
  if (left_.load(std::memory_order_relaxed)) {
    return FailedPrecondition(what, ": ", identity_.task, " has left job \"", identity_.job, "\"");
  }
  if (identity_.fenced != nullptr && identity_.fenced->load(std::memory_order_relaxed)) {
    return Annotate(FencedError(identity_.task), what);
  }
  if (!deadline.Expired()) return absl::OkStatus();
  const absl::Status unknown = map_failure();
  return absl::DeadlineExceededError(
      unknown.ok() ? absl::StrCat(what, ": ", late)
                   : absl::StrCat(what, ": the deadline has passed: ", unknown.message()));
}

void ClientGate::SetMapFailure(const absl::Status& failure) {
  absl::MutexLock lock(&mutex_);
  map_failure_ = failure;
}

absl::Status ClientGate::map_failure() const {
  absl::MutexLock lock(&mutex_);
  return map_failure_;
}

}  // namespace cairn
