// Makes items in threads, ahead of their consumer.
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

// The threads start with the first Next. The destructor joins them; it waits for what they call.
// Thread safety: one thread calls Next.
template <typename T>
class ReadAhead {
 public:
  // Fills an item, which may be one that Next has taken back; false: there are no more. An error
  // takes the place of an item, and items may follow it. One thread at a time calls it.
  using Make = std::function<absl::StatusOr<bool>(T* item)>;
  // Completes an item that was made. Several threads may call it at once.
  using Finish = std::function<absl::Status(T* item)>;

  // Up to `ahead` items (> 0) are ready, and each thread holds another one.
  ReadAhead(size_t ahead, Make make)
      : ReadAhead(
            ahead, std::move(make), [](T*) { return absl::OkStatus(); }, 1) {}
  ReadAhead(size_t ahead, Make make, Finish finish, int threads)
      : ahead_(ahead),
        make_(std::move(make)),
        finish_(std::move(finish)),
        threads_(static_cast<size_t>(threads)) {}
  ~ReadAhead() {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
      space_.Signal();
    }
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  // Swaps `item` with the next one. False: there are no more.
  absl::StatusOr<bool> Next(T* item) {
    if (!threads_.front().joinable()) {
      for (std::thread& thread : threads_) thread = std::thread([this] { Run(); });
    }
    absl::MutexLock lock(&mutex_);
    // This wait ends with the threads, which wait only for their input and for space here.
    while (items_.empty() ? !ended_ : !items_.front().ready) data_.Wait(&mutex_);
    if (items_.empty()) return false;
    absl::Status status = std::move(items_.front().status);
    std::swap(*item, items_.front().value);
    spare_.push_back(std::move(items_.front().value));
    items_.pop_front();
    // Waking a thread costs more than making a small item, so it is woken only when there is space
    // for several.
    if (items_.size() == ahead_ / 2) space_.Signal();
    if (!status.ok()) return status;
    return true;
  }

 private:
  struct Item {
    T value = {};
    absl::Status status;
    bool ready = false;
  };

  void Run() {
    while (Item* const item = MakeNext()) {
      if (item->status.ok()) item->status = finish_(&item->value);
      absl::MutexLock lock(&mutex_);
      item->ready = true;
      if (item == &items_.front()) data_.Signal();
    }
  }

  // Null: there are no more.
  Item* MakeNext() {
    absl::MutexLock one(&make_mutex_);
    Item* item = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      while (items_.size() >= ahead_ + threads_.size() && !stop_) space_.Wait(&mutex_);
      if (stop_ || ended_) return nullptr;
      item = &items_.emplace_back();
      if (!spare_.empty()) {
        item->value = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    const absl::StatusOr<bool> made = make_(&item->value);
    item->status = made.status();
    if (!made.ok() || *made) return item;
    absl::MutexLock lock(&mutex_);
    items_.pop_back();
    ended_ = true;
    data_.Signal();
    return nullptr;
  }

  const size_t ahead_;
  const Make make_;
  const Finish finish_;
  std::vector<std::thread> threads_;
  absl::Mutex make_mutex_;  // held while an item is made; taken before mutex_
  absl::Mutex mutex_;
  absl::CondVar data_;   // the first item is ready, or ended_ is set
  absl::CondVar space_;  // items_ has shrunk to half, or stop_ is set
  // In order. An item belongs to the thread that made it until it is ready.
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  std::vector<T> spare_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // there are no items after items_
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
