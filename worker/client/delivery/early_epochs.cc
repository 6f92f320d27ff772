#include "worker/client/delivery/early_epochs.h"

#include "common/scoped_unlock.h"

namespace cairn {

void EarlyEpochs::Ask() {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  asked_ = true;
  changed_.Signal();
  if (!thread_.joinable()) thread_ = std::thread(&EarlyEpochs::Loop, this);
}

void EarlyEpochs::Stop() {
  std::thread thread;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

void EarlyEpochs::Loop() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    while (!asked_ && !stopping_) changed_.Wait(&mutex_);
    if (stopping_) return;
    {
      const ScopedUnlock unlock(&mutex_);
      flush_();
    }
    asked_ = false;  // who asked meanwhile was part of it, or asks again with its next push
  }
}

}  // namespace cairn
