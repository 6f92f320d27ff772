// Asks servers to write what they have before their interval is over, beside the pushes.
#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class EarlyEpochs {
 public:
  // `flush` asks once and bounds its own time; it runs in a thread that the first Ask starts.
  explicit EarlyEpochs(std::function<void()> flush) : flush_(std::move(flush)) {}
  ~EarlyEpochs() { Stop(); }

  // Returns at once. Nothing happens where one is asked for already.
  void Ask();
  // Waits for one that is under way. Nothing is asked afterwards.
  void Stop();

 private:
  void Loop();

  const std::function<void()> flush_;
  absl::Mutex mutex_;
  absl::CondVar changed_;  // asked_ or stopping_
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
