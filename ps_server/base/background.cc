#include "ps_server/base/background.h"

#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace cairn {
namespace {

class Background {
 public:
  void Add(std::function<void()> work) {
    absl::MutexLock lock(&mutex_);
    if (!started_) std::thread([this] { Loop(); }).detach();
    started_ = true;
    work_.push_back(std::move(work));
  }

 private:
  [[noreturn]] void Loop() {
    while (true) {
      std::function<void()> work;
      {
        absl::MutexLock lock(&mutex_, absl::Condition(this, &Background::HasWork));
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !work_.empty(); }

  absl::Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void RunInBackground(std::function<void()> work) {
  // Never destroyed: its thread runs until the process ends.
  static Background& background = *new Background;
  background.Add(std::move(work));
}

}  // namespace cairn
