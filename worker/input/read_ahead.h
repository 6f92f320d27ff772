// Makes items in threads, ahead of their consumer.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/monotonic_cond_var.h"
#include "common/status.h"

namespace cairn {

// Starts up to `count` threads that run `body`; fewer if the system refuses more.
// kResourceExhausted, naming `what`: it refuses even one.
absl::Status StartThreads(absl::string_view what, size_t count, const std::function<void()>& body,
                          std::vector<std::thread>* threads);
// Logs that a consumer has waited for `what` for another `waited`.
void LogSlowRead(absl::string_view what, absl::Duration waited);

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

  // Up to `ahead` items (> 0) are ready, and each thread holds another one. Messages name the items
  // by `what`, as in "rows of FILE".
  ReadAhead(std::string what, size_t ahead, Make make, Finish finish, int threads)
      : what_(std::move(what)),
        ahead_(ahead),
        most_threads_(static_cast<size_t>(threads)),
        make_(std::move(make)),
        finish_(std::move(finish)) {}
  ~ReadAhead() {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
      space_.Signal();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  // Starts the threads unless they run. kResourceExhausted: the system refuses even one; the next
  // call tries again.
  absl::Status Start() {
    if (!threads_.empty()) return absl::OkStatus();
    return StartThreads(
        what_, most_threads_, [this] { Run(); }, &threads_);
  }

  // Swaps `item` with the next one. False: there are no more. kCancelled: an Interruption ended the
  // wait, and the next call continues. Start's error.
  absl::StatusOr<bool> Next(T* item) {
    RETURN_IF_ERROR(Start());
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(WaitForFirst());
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

  // Waits until the first item is ready, or there are no more. Only an Interruption limits this
  // wait: reading and the callers' functions may take any time.
  absl::Status WaitForFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Deadline interrupted = Deadline::In(absl::InfiniteDuration());
    Deadline noted = Deadline::In(kNoteEvery);
    while (items_.empty() ? !ended_ : !items_.front().ready) {
      if (interrupted.Expired()) return Cancelled("interrupted while it waited for ", what_);
      if (noted.Expired()) {
        LogSlowRead(what_, kNoteEvery);
        noted = Deadline::In(kNoteEvery);
      }
      data_.WaitUntil(&mutex_, noted);
    }
    return absl::OkStatus();
  }

  void Run() {
    while (Item* const item = MakeNext()) {
      if (item->status.ok()) item->status = finish_(&item->value);
      bool is_first = false;
      {
        absl::MutexLock lock(&mutex_);
        item->ready = true;
        is_first = item == &items_.front();
      }
      // Not under the lock, on which the consumer would only wait again.
      if (is_first) data_.SignalAll();
    }
  }

  // Null: there are no more.
  Item* MakeNext() {
    absl::MutexLock one(&make_mutex_);
    Item* item = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      while (items_.size() >= ahead_ + most_threads_ && !stop_) space_.Wait(&mutex_);
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
    data_.SignalAll();
    return nullptr;
  }

  static constexpr absl::Duration kNoteEvery = absl::Minutes(1);

  const std::string what_;
  const size_t ahead_;
  const size_t most_threads_;
  const Make make_;
  const Finish finish_;
  std::vector<std::thread> threads_;  // empty before the first Next
  absl::Mutex make_mutex_;            // held while an item is made; taken before mutex_
  absl::Mutex mutex_;
  MonotonicCondVar data_;  // the first item is ready, or ended_ is set
  absl::CondVar space_;    // items_ has shrunk to half, or stop_ is set
  // In order. An item belongs to the thread that made it until it is ready.
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  std::vector<T> spare_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // there are no items after items_
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
