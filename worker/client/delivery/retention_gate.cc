#include "worker/client/delivery/retention_gate.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/interruption.h"
#include "common/monotonic_sleep.h"
#include "common/scoped_unlock.h"
#include "common/status.h"
#include "common/time_text.h"
#include "worker/client/delivery/retained_call.h"

namespace cairn {
namespace {

constexpr absl::string_view kForRoom =
    "room among the pushes that are not durable yet (retained_bytes)";
// An early snapshot that takes longer continues, but the gate's thread stops waiting for it.
constexpr absl::Duration kSnapshotTimeout = absl::Seconds(5);

}  // namespace

absl::Status RetentionGate::WaitForCapacity(absl::Span<Exchange* const> exchanges,
                                            Deadline deadline) {
  if (identity_.retention == nullptr) return absl::OkStatus();
  int64_t needed = 0;
  for (const Exchange* exchange : exchanges) {
    if (Updates(*exchange)) needed += RetainedBytes(exchange->call);
  }
  const absl::Duration wait =
      pace_.Wait(needed, retention_.bytes(), retention_.dropped_bytes(), MonotonicNow());
  if (wait > absl::ZeroDuration()) {
    order_.WaitsFor(kForRoom);
    // Nothing needs to end this wait early: it is at most RetentionPace::kLongest.
    MonotonicSleep(std::min(wait, deadline.Remaining()));
    order_.WaitsFor("its servers");
  }
  return retention_.HasRoomFor(needed) ? absl::OkStatus() : WaitForSnapshots(needed, deadline);
}

absl::Status RetentionGate::WaitForSnapshots(int64_t needed, Deadline deadline) {
  const absl::Time start = absl::Now();
  order_.WaitsFor(kForRoom);
  // A snapshot frees everything retained for its server, so one for each server is enough, plus one
  // for servers that restarted in between. Under sync a contribution becomes durable with its step,
  // and a restarted server closes the step only after other workers have replayed theirs.
  Backoff backoff(identity_.ps_wait, deadline);
  for (size_t snapshots = 0; !retention_.HasRoomFor(needed); ++snapshots) {
    const std::vector<int32_t> servers = sessions_.Live();
    const bool waits = snapshots >= servers.size();
    const auto held_by = [this](int32_t server) {
      return sessions_[static_cast<size_t>(server)].retained_bytes();
    };
    const int32_t fullest = *std::ranges::max_element(
        servers, [&](int32_t a, int32_t b) { return held_by(a) < held_by(b); });
    const ServerSession& session =
        sessions_[static_cast<size_t>(waits ? servers[snapshots % servers.size()] : fullest)];
    const absl::Time since = session.retained_since();
    const int64_t held = session.retained_bytes();
    absl::Status status = calls_.Flush(session.index(), deadline.Remaining(), deadline);
    if (session.departed()) status = absl::OkStatus();  // nothing is retained for it now
    if (status.ok() && waits && identity_.synchronous() && !backoff.Pause()) {
      status = absl::UnavailableError("the steps of its retained contributions have not closed");
    }
    if (status.ok() && snapshots > 3 * servers.size() && !identity_.synchronous()) {
      status = absl::InternalError("its snapshots do not make the retained pushes durable");
    }
    if (status.ok()) continue;
    return Annotate(
        status, absl::StrCat("push: ", needed, " bytes have waited since ", TimeOfDayText(start),
                             " for room in retained_bytes (", retention_.limit_bytes(), "); ", held,
                             " bytes are retained for ", session.name(),
                             ", not durable there since ", TimeOfDayText(since)));
  }
  order_.WaitsFor("its servers");
  return absl::OkStatus();
}

void RetentionGate::RequestSnapshots() {
  if (retention_.bytes() <= retention_.limit_bytes() / 2) return;
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  asked_ = true;
  changed_.SignalAll();
  // Where the thread is refused, the next push asks again.
  if (thread_ == nullptr) thread_ = StartClientThread([this] { Loop(); });
}

void RetentionGate::Stop(Deadline deadline) {
  ClientThread thread;  // destroyed, and so joined, after the lock is released
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  changed_.SignalAll();
  while (flushing_ && !deadline.Expired()) changed_.WaitUntil(&mutex_, deadline);
  gives_up_.store(true);
  thread.swap(thread_);
}

void RetentionGate::Loop() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    while (!asked_ && !stopping_) changed_.WaitUntil(&mutex_, Deadline::In(absl::Hours(1)));
    if (stopping_) return;
    flushing_ = true;
    {
      const ScopedUnlock unlock(&mutex_);
      Flush();
    }
    flushing_ = false;
    asked_ = false;  // a request made in the meantime was covered, or the next push repeats it
    changed_.SignalAll();
  }
}

void RetentionGate::Flush() {
  const Interruption interruption(
      [](void* gives_up) { return static_cast<std::atomic<bool>*>(gives_up)->load(); }, &gives_up_);
  // Errors are ignored: a push that needs the room waits for it, and reports why it does not come.
  calls_
      .ForEach(sessions_.Live(),
               [&](int32_t server) {
                 const ServerSession& session = sessions_[static_cast<size_t>(server)];
                 if (session.retained_bytes() == 0) return absl::OkStatus();
                 return calls_.Flush(server, kSnapshotTimeout, Deadline::In(kSnapshotTimeout));
               })
      .IgnoreError();
}

}  // namespace cairn
