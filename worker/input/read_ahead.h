// Makes items in a thread, ahead of their consumer.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

// The thread starts with the first Next. The destructor joins it; it waits for a running `make`.
// Thread safety: one thread calls Next.
template <typename T>
class ReadAhead {
 public:
  // Fills an item, which may be one that Next has taken back; false: there are no more. An error
  // takes the place of an item, and items may follow it. Only the thread calls it.
  using Make = std::function<absl::StatusOr<bool>(T* item)>;

  // Up to `ahead` items (> 0) are ready, and the thread holds another one.
  ReadAhead(size_t ahead, Make make) : ahead_(ahead), make_(std::move(make)) {}
  ~ReadAhead() {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
      space_.Signal();
    }
    if (thread_.joinable()) thread_.join();
  }

  // Swaps `item` with the next one. False: there are no more.
  absl::StatusOr<bool> Next(T* item) {
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    absl::MutexLock lock(&mutex_);
    // This wait ends with the thread, which waits only for its input and for space here.
    while (ready_.empty() && !ended_) data_.Wait(&mutex_);
    if (ready_.empty()) return false;
    absl::Status status = std::move(ready_.front().first);
    std::swap(*item, ready_.front().second);
    spare_.push_back(std::move(ready_.front().second));
    ready_.pop_front();
    // Waking the thread costs more than making a small item, so it is woken only when there is
    // space for several.
    if (ready_.size() == ahead_ / 2) space_.Signal();
    if (!status.ok()) return status;
    return true;
  }

 private:
  void Run() {
    for (T item;;) {
      absl::StatusOr<bool> made = make_(&item);
      absl::MutexLock lock(&mutex_);
      if (made.ok() && !*made) {
        ended_ = true;
        data_.Signal();
        return;
      }
      while (ready_.size() >= ahead_ && !stop_) space_.Wait(&mutex_);
      if (stop_) return;
      ready_.emplace_back(made.status(), std::move(item));
      if (ready_.size() == 1) data_.Signal();
      item = T();
      if (spare_.empty()) continue;
      item = std::move(spare_.back());
      spare_.pop_back();
    }
  }

  const size_t ahead_;
  const Make make_;
  absl::Mutex mutex_;
  absl::CondVar data_;   // ready_ is not empty, or ended_ is set
  absl::CondVar space_;  // ready_ has shrunk to half, or stop_ is set
  std::deque<std::pair<absl::Status, T>> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<T> spare_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn
