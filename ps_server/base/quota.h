// Limits how many jobs and workers clients may create; each is charged to the memory budget.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps_server/base/memory_budget.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class Quota {
 public:
  // One unit of the quota; the destructor returns it. Movable.
  class Place {
   public:
    Place() = default;
    Place(Quota* quota, MemoryHold hold) : quota_(quota), hold_(std::move(hold)) {}
    Place(Place&& other) noexcept : quota_(other.quota_), hold_(std::move(other.hold_)) {
      other.quota_ = nullptr;
    }
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (quota_ != nullptr) quota_->used_.fetch_sub(1);
    }

   private:
    Quota* quota_ = nullptr;
    MemoryHold hold_;
  };

  // On whose behalf a place is taken.
  enum class For {
    kCaller,  // a client's request: the limit holds
    kStore,   // data on disk: loaded even beyond a limit that was lowered
  };

  struct Terms {
    std::string server;        // "ps:0"
    absl::string_view what;    // "jobs"
    absl::string_view flag;    // "--max_jobs"
    int64_t limit = 0;         // places
    int64_t charge_bytes = 0;  // charged to the budget for each place
  };
  // `budget` must outlive the quota, and the quota its places.
  Quota(Terms terms, MemoryBudget& budget) : terms_(std::move(terms)), budget_(budget) {}

  // kResourceExhausted: LIMIT, or MEMORY_BUDGET after waiting as in MemoryBudget::Acquire. The
  // message begins with `who`.
  absl::StatusOr<Place> Take(absl::string_view who, For whom);

  const std::string& server() const { return terms_.server; }
  bool full() const { return used_.load() >= terms_.limit; }
  int64_t limit() const { return terms_.limit; }

 private:
  const Terms terms_;
  MemoryBudget& budget_;
  std::atomic<int64_t> used_{0};
};

}  // namespace cairn
