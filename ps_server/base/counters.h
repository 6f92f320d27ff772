// Counters since the start of the server, by name, for `describe` and the line printed at exit.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace cairn {

enum class Counter : int {
  kPushes,  // answered OK, repeats included
  kPulls,
  kAssigns,
  kPushesRefused,         // pushes and assigns that failed for any reason
  kPushesRepeated,        // acknowledged but not applied: the sequence had been applied before
  kPushesReordered,       // answered with REPLAY
  kFenced,                // calls of incarnations that have ended
  kNotFinite,             // pushes with NaN or infinity, rejected or skipped
  kRowsMade,              // embedding rows
  kSteps,                 // closed synchronous steps
  kContributionsDropped,  // pushes for a step that closed without them
  kContributionsLost,  // contributions that count for a step, but the step closed here without them
  kLast = kContributionsLost
};

// Thread safety: every method may be called from several threads at once.
class Counters {
 public:
  void Add(Counter counter, int64_t count = 1) {
    counts_[static_cast<size_t>(counter)].fetch_add(count, std::memory_order_relaxed);
  }
  int64_t Get(Counter counter) const {
    return counts_[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
  }
  std::map<std::string, int64_t> ByName() const {
    std::map<std::string, int64_t> by_name;
    for (size_t i = 0; i < kNames.size(); ++i) by_name[kNames[i]] = counts_[i].load();
    return by_name;
  }

 private:
  static constexpr std::array<const char*, static_cast<size_t>(Counter::kLast) + 1> kNames = {
      "pushes",
      "pulls",
      "assigns",
      "pushes_refused",
      "pushes_repeated",
      "pushes_reordered",
      "fenced",
      "not_finite",
      "rows_made",
      "steps",
      "contributions_dropped",
      "contributions_lost"};
  std::array<std::atomic<int64_t>, kNames.size()> counts_{};
};

}  // namespace cairn
