#include "worker/client/moves/map_follower.h"

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/monotonic_sleep.h"
#include "thrift/convert.h"
#include "thrift/errors.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(10), kLongestPause = absl::Seconds(1);

}  // namespace

bool Moved(const Exchange& exchange) {
  return ReasonOf(exchange.outcome.status) == wire::ErrorReason::MOVED;
}

void MapFollower::Learn(const absl::Status& moved, Deadline deadline) {
  const auto known = static_cast<int32_t>(sessions_.size());
  absl::Status failure;
  for (const wire::VariableSpec& wire : MovedOf(moved)) {
    absl::StatusOr<VariableSpec> spec = FromWire(wire, 0, std::max(known, kMaxServers));
    // A map is useful only when the client knows every server in it.
    absl::Status learned = spec.status();
    if (learned.ok()) learned = membership_.EnsureServersKnown(*spec, deadline);
    if (learned.ok()) {
      variables_.Insert(*std::move(spec));
    } else {
      failure = std::move(learned);
    }
  }
  PauseAfter(failure, deadline);
}

// Callers retry the server that refused the call, and it refuses again without delay.
void MapFollower::PauseAfter(const absl::Status& failure, Deadline deadline) {
  gate_.SetMapFailure(failure);
  absl::Duration pause;
  {
    const absl::MutexLock lock(&mutex_);
    if (failure.ok()) {
      next_pause_ = kFirstPause;
      return;
    }
    pause = std::min(next_pause_, deadline.Remaining());
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
  }
  LOG_EVERY_T(WARNING, 10) << identity_.task
                           << " cannot follow rows that have moved: " << failure.message();
  MonotonicSleep(pause);
}

bool MapFollower::Learn(absl::Span<Exchange* const> exchanges, Deadline deadline) {
  bool any = false;
  for (const Exchange* exchange : exchanges) {
    if (!Moved(*exchange)) continue;
    Learn(exchange->outcome.status, deadline);
    any = true;
  }
  return any;
}

}  // namespace cairn
