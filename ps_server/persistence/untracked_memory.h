// Estimates the resident memory of a process that is not charged to the budget: the program,
// scratch memory, and memory that malloc retains.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// Computes how much of this memory to charge to a memory budget, so that rows of tables make room
// for it. Thread safety: none.
class UntrackedMemory {
 public:
  // In smaller budgets, too little is left for rows of tables.
  static constexpr int64_t kMinBudgetBytes = 128 << 20;

  explicit UntrackedMemory(int64_t limit_bytes) : limit_(limit_bytes) {}

  struct Seen {
    int64_t resident_bytes = 0;  // of the process
    int64_t idle_bytes = 0;      // part of it: memory that rows no longer use, kept for new rows
    int64_t charged_bytes = 0;   // charged to the budget, without the rest
    int64_t rows_bytes = 0;      // part of it: rows that can be evicted
    absl::Duration at;           // on the monotonic clock
  };
  // Returns the bytes to charge for the rest. Rises at once and falls slowly: memory that was
  // needed a moment ago, for example by a compaction, is soon needed again. 0 while at most half of
  // the budget is resident. Leaves at least an eighth of the budget and at least 40 MiB for rows
  // and calls, but may always charge a quarter of the budget.
  int64_t Note(const Seen& seen);

  // The bytes to leave free while a server loads rows on its own account, for example at its start:
  // what the rest soon grows to and is not charged yet.
  int64_t expected_bytes() const;

 private:
  int64_t usual_bytes() const;

  const int64_t limit_;
  int64_t held_ = 0;
  int64_t charged_ = 0;  // bytes charged for the rest
  absl::Duration noted_;
};

}  // namespace cairn
