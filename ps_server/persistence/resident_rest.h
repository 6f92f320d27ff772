// What a process has resident and nobody is charged for: the program, scratch memory, what malloc
// keeps.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// How much of it to charge to a memory budget, so that rows of tables make room for it. Thread
// safety: none.
class ResidentRest {
 public:
  // The least of which rows of tables keep a part worth having.
  static constexpr int64_t kSmallestBudgetBytes = 128 << 20;

  explicit ResidentRest(int64_t limit_bytes) : limit_(limit_bytes) {}

  struct Seen {
    int64_t resident_bytes = 0;  // of the process
    int64_t idle_bytes = 0;      // of that, memory that rows have left and others are to use
    int64_t charged_bytes = 0;   // to the budget, without the rest
    int64_t rows_bytes = 0;      // of that, rows that can leave
    absl::Duration at;           // on the monotonic clock
  };
  // Rises at once, and falls slowly: what was needed a moment ago, as by a compaction, is soon
  // needed again. Nothing while no more than half of the budget is resident. Of the rest no more
  // than leaves rows and calls an eighth of the budget, and 40 MiB; but up to a quarter always.
  int64_t Note(const Seen& seen);

  // To be left free while rows come to memory by themselves, as at a start, of what the rest soon
  // comes to and is not charged.
  int64_t expected_bytes() const;

 private:
  int64_t usual_bytes() const;

  const int64_t limit_;
  int64_t held_ = 0;
  int64_t charged_ = 0;  // of the rest
  absl::Duration noted_;
};

}  // namespace cairn
