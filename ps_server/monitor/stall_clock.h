// Measures how long each job has been stalled.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"

namespace cairn {

// A stall begins with the first call of Note that reports it.
// Thread safety: every method may be called from several threads at once.
class StallClock {
 public:
  // Seconds since `job` stalled; nullopt: it is not stalled.
  std::optional<double> Note(const std::string& job, bool stalled) {
    const absl::MutexLock lock(&mutex_);
    if (!stalled) {
      since_.erase(job);
      return std::nullopt;
    }
    const absl::Duration now = MonotonicNow();
    return absl::ToDoubleSeconds(now - since_.emplace(job, now).first->second);
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, absl::Duration> since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
