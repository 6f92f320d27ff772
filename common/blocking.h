// Tells the scheduler of threads that a thread is about to block, so that another may use its core.
#pragma once

namespace cairn {

// What a blocked thread may hold, which decides whether it may be delayed further after its wait.
enum class WaitFor {
  kAnything,  // a mutex, an exclusive slot, a place in a queue: other threads may need it
  kPeer,      // waiting for a peer to send or receive bytes: the thread holds memory at most
};

// Called by the blocking thread; calls of Blocks and Unblocks alternate. Unblocks(kPeer) may itself
// wait until the thread may use a core again.
class BlockingObserver {
 public:
  virtual ~BlockingObserver() = default;
  virtual void Blocks() = 0;
  virtual void Unblocks(WaitFor what) = 0;
};

// Marks a scope in which this thread waits for another thread, a peer or a disk. Nested scopes
// count as one. Costs nothing on a thread without an observer.
class Blocking {
 public:
  explicit Blocking(WaitFor what = WaitFor::kAnything);
  ~Blocking();
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

  // Whether this thread has an observer.
  static bool IsObserved();

 private:
  const WaitFor what_;
};

// While in scope, `observer` is notified of this thread's waits. Not nested.
class ObservedThread {
 public:
  explicit ObservedThread(BlockingObserver* observer);
  ~ObservedThread();
  ObservedThread(const ObservedThread&) = delete;
  ObservedThread& operator=(const ObservedThread&) = delete;
};

}  // namespace cairn
