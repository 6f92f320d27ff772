#include "worker/client/delivery/early_epochs.h"

#include "common/deadline.h"
#include "common/scoped_unlock.h"

namespace cairn {
namespace {

// An epoch that takes longer goes on without being waited for.
constexpr absl::Duration kTimeout = absl::Seconds(5);

}  // namespace

void EarlyEpochs::Ask() {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  asked_ = true;
  changed_.SignalAll();
  if (thread_ == nullptr) thread_ = StartClientThread([this] { Loop(); });
}

void EarlyEpochs::Stop() {
  ClientThread thread;  // waits for its end without the lock
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  changed_.SignalAll();
  thread.swap(thread_);
}

void EarlyEpochs::Loop() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    while (!asked_ && !stopping_) changed_.WaitUntil(&mutex_, Deadline::In(absl::Hours(1)));
    if (stopping_) return;
    {
      const ScopedUnlock unlock(&mutex_);
      Flush();
    }
    asked_ = false;  // who asked meanwhile was part of it, or asks again with its next push
  }
}

void EarlyEpochs::Flush() {
  // Whoever needs the room waits for it, and tells where it does not come.
  calls_
      .ForEach(sessions_.Live(),
               [&](int32_t server) {
                 const ServerSession& session = sessions_[static_cast<size_t>(server)];
                 if (session.retained_bytes() == 0) return absl::OkStatus();
                 return calls_.Flush(server, kTimeout, Deadline::In(kTimeout));
               })
      .IgnoreError();
}

}  // namespace cairn
