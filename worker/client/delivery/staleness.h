// Counts the staleness of pushes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/synchronization/mutex.h"
#include "worker/client/ps_client.h"

namespace cairn {

// Thread safety: every method may be called from several threads at once.
class StalenessCounter {
 public:
  // Adds one shard's push. Negative: unknown, not counted.
  void Add(int64_t staleness);
  StalenessSummary Summary() const;

 private:
  static constexpr size_t kExact = 1024;  // larger values are rare and go in `beyond_`

  mutable absl::Mutex mutex_;
  std::vector<int64_t> counts_ ABSL_GUARDED_BY(mutex_) = std::vector<int64_t>(kExact);
  absl::btree_map<int64_t, int64_t> beyond_ ABSL_GUARDED_BY(mutex_);
  int64_t total_ ABSL_GUARDED_BY(mutex_) = 0;
  double sum_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
