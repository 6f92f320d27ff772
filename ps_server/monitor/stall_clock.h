// How long each job has stalled.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/deadline.h"

namespace cairn {

// A stall begins when somebody first looks at the stalled job.
// Thread safety: every method may be called from several threads at once.
class StallClock {
 public:
  // How long `job` has stalled; nullopt: it has not.
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
