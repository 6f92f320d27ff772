// Memory of a reply that stays charged after its call, until the reply has been sent.
#pragma once

#include <utility>
#include <vector>

#include "ps_server/base/memory_budget.h"

namespace cairn {

// While one exists, it keeps the memory charged for the replies of calls on its thread. Callers in
// this process have none: their replies are charged until the call returns.
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
  // The reply has been sent, or dropped.
  void Release() { holds_.clear(); }

 private:
  static inline thread_local ReplyHolds* of_thread_ = nullptr;
  std::vector<MemoryHold> holds_;
};

}  // namespace cairn
