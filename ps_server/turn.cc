#include "ps_server/turn.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"

namespace cairn {
namespace {

int64_t NowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::StatusOr<Turn::Held> Turn::Take(absl::string_view what, absl::Duration patience) {
  const Deadline deadline = Deadline::In(patience);
  absl::MutexLock lock(&mutex_);
  while (taken_) {
    if (deadline.Expired()) {
      return absl::UnavailableError(
          absl::StrCat(what, " waits for ", what_, ", which has run for ",
                       absl::FormatDuration(absl::Seconds((NowNanoseconds() - since_ns_) / 1e9)),
                       ": retry when it has ended"));
    }
    ended_.WaitWithTimeout(&mutex_, deadline.Remaining());
  }
  taken_ = true;
  what_ = std::string(what);
  since_ns_ = NowNanoseconds();
  return Held(this);
}

void Turn::End() {
  absl::MutexLock lock(&mutex_);
  taken_ = false;
  ended_.Signal();
}

}  // namespace cairn
