// Tells whoever shares threads out that one of them waits, and so leaves its core to others.
#pragma once

namespace cairn {

// What a thread that waits may hold meanwhile, and so whether it may be kept waiting longer.
enum class WaitFor {
  kAnything,  // a mutex, a turn, a place in an order: others may need it
  kPeer,      // a peer's bytes, or its room for ours: memory at most
};

// Told by the thread that waits; Blocks and Unblocks alternate. Unblocks may wait until the thread
// has a core again, where `what` was a peer.
class BlockingObserver {
 public:
  virtual ~BlockingObserver() = default;
  virtual void Blocks() = 0;
  virtual void Unblocks(WaitFor what) = 0;
};

// While in scope, this thread waits for another thread, a peer or a disk. Nested ones count as one.
// Costs nothing on a thread without an observer.
class Blocking {
 public:
  explicit Blocking(WaitFor what = WaitFor::kAnything);
  ~Blocking();
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

  // Whether anybody wants to know of waits of this thread.
  static bool IsObserved();

 private:
  const WaitFor what_;
};

// While in scope, `observer` is told of this thread's waits. Not nested.
class ObservedThread {
 public:
  explicit ObservedThread(BlockingObserver* observer);
  ~ObservedThread();
  ObservedThread(const ObservedThread&) = delete;
  ObservedThread& operator=(const ObservedThread&) = delete;
};

}  // namespace cairn
