// Holds idle connections in one epoll set, without a thread, until they are readable or their
// deadline has passed. The polling thread pool then serves them.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/descriptor.h"
#include "ps_server/net/call_pool.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class ConnectionLoop : public CallPool::Source {
 public:
  // A connection that the loop can park. At any time it is parked, queued in the pool, or running.
  class Parkable : public CallPool::Task {
   public:
    // The descriptor; open and unchanged until the object is destroyed. It is destroyed only while
    // it runs.
    virtual int fd() const = 0;
    // Frees memory. Called on any thread, once the connection has been parked for at least a tick.
    virtual void Tidy() = 0;

   protected:
    // For Run: whether it runs because its deadline has passed.
    bool expired() const { return expired_; }

   private:
    friend class ConnectionLoop;
    // Used by the loop, under its lock.
    bool known_ = false;  // registered with epoll
    bool expired_ = false;
    bool is_tidy_ = false;
    absl::Duration since_;  // on the monotonic clock
    absl::Duration until_;
  };
  enum class Until { kReadable, kWritable };

  // `tick`: the largest delay in noticing the deadline of a connection.
  explicit ConnectionLoop(absl::Duration tick) : tick_(tick), look_(Deadline::In(tick)) {}

  // `pool` serves the connections and outlives them. kResourceExhausted: no descriptors.
  absl::Status Open(CallPool* pool);
  // Parks `parkable` until its descriptor is ready (or broken, or shut down) or `deadline` has
  // passed; it then runs in the pool. The connection may have been destroyed when this returns.
  // Like Queue, throws nothing.
  void Park(Parkable& parkable, Until until, Deadline deadline);
  // Runs `parkable` in the pool, after the queued tasks. The connection may have been destroyed
  // when this returns.
  void Queue(Parkable& parkable);

  // Implement CallPool::Source.
  void Poll(CallPool::Tasks& ready) override;
  void Interrupt() override;

 private:
  void TakeExpired(CallPool::Tasks& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration tick_;
  CallPool* pool_ = nullptr;
  Descriptor epoll_;
  Descriptor wake_;  // an eventfd
  absl::Mutex mutex_;
  Deadline look_ ABSL_GUARDED_BY(mutex_);           // next check for expired deadlines
  CallPool::Tasks parked_ ABSL_GUARDED_BY(mutex_);  // each a Parkable
};

}  // namespace cairn
