// RocksDB's own statistics. Internal to storage/, because it includes RocksDB.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rocksdb/db.h"
#include "storage/stripe_store.h"

namespace cairn {

// RocksDB's properties, and those of its tickers that are useful to an operator.
std::vector<StoreStatistic> StatisticsOf(rocksdb::DB& db);

// Bytes of all files in `folder` and below; files that are deleted in the meantime may count or
// not.
int64_t FolderBytes(const std::string& folder);

// FolderBytes, which visits every file, cached for a few seconds.
// Thread safety: every method may be called from several threads at once.
class FolderMeter {
 public:
  explicit FolderMeter(std::string folder) : folder_(std::move(folder)) {}
  int64_t Bytes();

 private:
  const std::string folder_;
  absl::Mutex mutex_;
  std::optional<absl::Duration> counted_at_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};
inline constexpr absl::Duration kFolderFreshness = absl::Seconds(5);

}  // namespace cairn
