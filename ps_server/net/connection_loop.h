// Connections that rest: in one epoll set, without a thread, until they are readable or their time
// is up. What is ready then goes to the pool of threads that polls it.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "ps_server/net/call_pool.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class ConnectionLoop : public CallPool::Source {
 public:
  // A connection. It rests, or is in the pool, or runs; one of them at a time.
  class Guest : public CallPool::Task {
   public:
    // Stays open, and the same, until the guest is destroyed, which it is while it runs.
    virtual int fd() const = 0;
    // It has rested for a tick at least: to give memory back. While it rests, on any thread.
    virtual void Tidy() = 0;

   protected:
    // Whether it runs because its time was up. For Run.
    bool expired() const { return expired_; }

   private:
    friend class ConnectionLoop;
    // Of the loop, under its lock.
    bool known_ = false;  // to epoll
    bool expired_ = false;
    bool is_tidy_ = false;
    absl::Duration since_;  // on the monotonic clock
    absl::Duration until_;
    size_t place_ = 0;  // in resting_
  };
  enum class Until { kReadable, kWritable };

  // `tick`: how late a guest's deadline may be noticed.
  explicit ConnectionLoop(absl::Duration tick) : tick_(tick), look_(Deadline::In(tick)) {}
  ~ConnectionLoop() override;
  ConnectionLoop(const ConnectionLoop&) = delete;
  ConnectionLoop& operator=(const ConnectionLoop&) = delete;

  // `pool` serves guests; it outlives the last of them. kResourceExhausted: no descriptors.
  absl::Status Open(CallPool* pool);
  // `guest`, which does not rest, runs in the pool once its descriptor is ready (or broken, or shut
  // down), or once `deadline` has passed. It may be gone when this returns.
  void Park(Guest& guest, Until until, Deadline deadline);
  // It runs in the pool, after those that are there. It may be gone when this returns.
  void Queue(Guest& guest);

  // Of the pool.
  void Poll(std::vector<CallPool::Task*>& ready) override;
  void Interrupt() override;

 private:
  void TakeExpired(std::vector<CallPool::Task*>& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndRest(Guest& guest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration tick_;
  CallPool* pool_ = nullptr;
  int epoll_ = -1;
  int wake_ = -1;  // an eventfd
  absl::Mutex mutex_;
  Deadline look_ ABSL_GUARDED_BY(mutex_);  // for guests whose time is up
  std::vector<Guest*> resting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
