// What lasts beyond a call until its reply has been sent, such as the memory of the reply.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ps_server/base/memory_budget.h"

namespace cairn {

// While one exists, it keeps what calls on its thread hold for their replies, until these are sent.
// Callers in this process have none: their replies hold nothing after the call.
// Thread safety: none; made, used and destroyed by one thread, at most one at a time.
class ReplyHolds {
 public:
  ReplyHolds() { of_thread_ = this; }
  ~ReplyHolds() { of_thread_ = nullptr; }
  ReplyHolds(const ReplyHolds&) = delete;
  ReplyHolds& operator=(const ReplyHolds&) = delete;

  // Keeps `hold` until the reply of the call that runs on this thread is sent.
  static void HoldUntilSent(MemoryHold hold) {
    if (of_thread_ != nullptr) of_thread_->holds_.push_back(std::move(hold));
  }
  // The same for an object whose destructor runs when the reply is sent.
  static void KeepUntilSent(std::shared_ptr<const void> kept) {
    if (of_thread_ != nullptr) of_thread_->kept_.push_back(std::move(kept));
  }
  // The reply has been sent, or dropped.
  void Release() {
    holds_.clear();
    kept_.clear();
  }

 private:
  static inline thread_local ReplyHolds* of_thread_ = nullptr;
  std::vector<MemoryHold> holds_;
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace cairn
