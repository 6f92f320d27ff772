// Memory of a reply that outlives the call that made it: until the reply has been sent.
#pragma once

#include <utility>
#include <vector>

#include "ps_server/base/memory_budget.h"

namespace cairn {

// While one exists, calls on its thread leave what their replies hold with it. Callers in this
// process have none: their replies count until the call returns.
// Thread safety: none; made, used and destroyed by one thread, at most one at a time.
class ReplyHolds {
 public:
  ReplyHolds() { of_thread_ = this; }
  ~ReplyHolds() { of_thread_ = nullptr; }
  ReplyHolds(const ReplyHolds&) = delete;
  ReplyHolds& operator=(const ReplyHolds&) = delete;

  // For the call that runs on this thread: `hold` lasts until the reply is sent, where it is.
  static void Keep(MemoryHold hold) {
    if (of_thread_ != nullptr) of_thread_->holds_.push_back(std::move(hold));
  }
  // The reply has been sent, or dropped.
  void Release() { holds_.clear(); }

 private:
  static inline thread_local ReplyHolds* of_thread_ = nullptr;
  std::vector<MemoryHold> holds_;
};

}  // namespace cairn
