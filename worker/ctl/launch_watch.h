// Watches a launch's job through its servers: whether every worker has joined, and the job's
// progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/descriptor.h"
#include "common/monotonic_cond_var.h"
#include "worker/ctl/server_view.h"
#include "worker/ctl/target.h"

namespace cairn {

// One sample of the servers' state, for progress lines. Thread safety: a value.
struct LaunchSample {
  absl::Duration at;                    // on the monotonic clock
  std::map<int32_t, int64_t> examples;  // by worker
};

// "Training: step 1200, 15 % done, 3 min left; 41200 rows/s, loss 0.4512". Sets `sample` to the
// state from which the next line computes its rates.
std::string ProgressLine(const std::vector<ServerView>& servers, absl::Duration now,
                         LaunchSample* sample);

// Whether at least `workers` workers of this launch have joined: they are, or were, live.
bool HaveJoined(const std::vector<ServerView>& servers, size_t workers);

// Polls the servers in its own thread: often until every worker has joined, then once per
// interval for a line of progress. Thread safety: Start and Take by one thread.
class LaunchWatch {
 public:
  // `workers`: how many workers must join; 0: ready at once. `progress_interval`: between lines of
  // progress; zero: no lines. kResourceExhausted: the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<LaunchWatch>> Start(Target target, size_t workers,
                                                            absl::Duration progress_interval);
  ~LaunchWatch();
  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;

  // A descriptor that is readable while Take has news.
  int file() const { return event_.get(); }
  struct News {
    bool ready = false;              // every worker has joined; stays true
    std::vector<std::string> lines;  // since the last call
  };
  News Take();

 private:
  LaunchWatch(Target target, size_t workers, absl::Duration progress_interval);
  void Run();
  void Tell(bool ready, std::string line);

  const Target target_;
  const size_t workers_;
  const absl::Duration progress_interval_;
  Descriptor event_;
  absl::Mutex mutex_;
  News news_ ABSL_GUARDED_BY(mutex_);
  StopFlag stop_;
  std::thread thread_;
};

}  // namespace cairn
