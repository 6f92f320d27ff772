// Streams of the fake devices: threads that do what is queued, one piece of work after the other.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace cairn::test::fake {
class Capture;
}

// The queue is a list with one consumer. The consumer releases nothing to the threads that queue
// work, except when IsIdle() is true: no lock orders a stream's work before unrelated later work,
// so ThreadSanitizer finds the waits that a program lacks.
// Thread safety: every method may be called from any thread.
struct CUstream_st : std::enable_shared_from_this<CUstream_st> {
 public:
  // Of `device`; the thread ends after Stop.
  static std::shared_ptr<CUstream_st> Start(int device);
  explicit CUstream_st(int device) : device_(device) {}
  ~CUstream_st();
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  int device() const { return device_; }
  void Push(std::function<void()> work);
  // True: all pushed work is done, and its effects are visible to the calling thread.
  bool IsIdle() const;
  // What is asked of the stream goes there instead; null: done. One host thread at a time.
  std::shared_ptr<cairn::test::fake::Capture> capture;
  // Ends the thread when it has done what is queued.
  void Stop() { Push(nullptr); }

 private:
  struct Node {
    std::function<void()> work;
    std::atomic<Node*> next{nullptr};
  };

  void Run();

  const int device_;
  sem_t ready_;
  Node* head_ = nullptr;  // the consumer's
  std::mutex producers_;
  Node* tail_ = nullptr;
  std::atomic<uint64_t> pushed_{0};
  std::atomic<uint64_t> done_{0};
};

// The latest recording of an event. Thread safety: as CUstream_st.
struct CUevent_st {
  struct Recording {
    void Complete(uint64_t number) {
      at.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
      done.store(number, std::memory_order_release);
    }
    void Await(uint64_t number) const;

    std::atomic<std::chrono::steady_clock::time_point> at{};
    std::atomic<uint64_t> done{0};
  };
  const std::shared_ptr<Recording> recording = std::make_shared<Recording>();
  bool timing = true;
  uint64_t recorded = 0;  // by host threads, one at a time
  // The capture that the event was last recorded in, and its number there; null: none.
  std::shared_ptr<cairn::test::fake::Capture> capture;
  size_t number_in_capture = 0;
};

namespace cairn::test::fake {

// Captures of the calling thread that have not ended.
int& Captures();

// All streams that are not destroyed, of `device` or, if it is -1, of all devices, are idle when
// the call returns.
void AwaitIdle(int device);

}  // namespace cairn::test::fake
