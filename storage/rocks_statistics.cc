#include "storage/rocks_statistics.h"

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "common/deadline.h"
#include "rocksdb/options.h"
#include "rocksdb/statistics.h"
#include "storage/rocks_options.h"
#include "storage/rocks_store.h"

namespace cairn {
namespace {

struct Property {
  const std::string& property;
  const char* name;
  const char* help;
  bool of_database = false;  // else the sum over the column families
};

struct Ticker {
  rocksdb::Tickers ticker;
  const char* name;
  const char* help;
  double unit = 1;
};

void AddProperties(rocksdb::DB& db, std::vector<StoreStatistic>& list) {
  using Properties = rocksdb::DB::Properties;
  const Property properties[] = {
      {Properties::kTotalSstFilesSize, "rocksdb_table_files_bytes",
       "Tables on disk, including those that will be deleted."},
      {Properties::kLiveSstFilesSize, "rocksdb_live_table_files_bytes",
       "Tables on disk in the newest version."},
      {Properties::kEstimateLiveDataSize, "rocksdb_live_data_bytes", "Estimate of live data."},
      {Properties::kEstimateNumKeys, "rocksdb_keys", "Estimate of the number of keys."},
      {Properties::kCurSizeAllMemTables, "rocksdb_memtable_bytes", "Write buffers in memory."},
      {Properties::kBlockCacheUsage, "rocksdb_block_cache_bytes", "Block cache in use.", true},
      {Properties::kBlockCacheCapacity, "rocksdb_block_cache_capacity_bytes",
       "Capacity of the block cache.", true},
      {Properties::kEstimateTableReadersMem, "rocksdb_table_readers_bytes",
       "Memory of table readers outside the block cache."},
      {Properties::kNumRunningFlushes, "rocksdb_running_flushes", "Running flushes.", true},
      {Properties::kNumRunningCompactions, "rocksdb_running_compactions", "Running compactions.",
       true},
      {Properties::kCompactionPending, "rocksdb_compaction_pending", "1: a compaction is due."},
      {Properties::kEstimatePendingCompactionBytes, "rocksdb_pending_compaction_bytes",
       "Estimate of the bytes that compactions must still rewrite."},
      {Properties::kActualDelayedWriteRate, "rocksdb_delayed_write_rate_bytes_per_second",
       "Rate to which writes are slowed down; 0: not slowed.", true},
      {Properties::kIsWriteStopped, "rocksdb_write_stopped", "1: writes wait for compactions.",
       true},
      {Properties::kBackgroundErrors, "rocksdb_background_errors_total",
       "Errors of flushes and compactions.", true},
  };
  for (const Property& property : properties) {
    uint64_t value = 0;
    const bool known = property.of_database
                           ? db.GetIntProperty(property.property, &value)
                           : db.GetAggregatedIntProperty(property.property, &value);
    if (!known) continue;
    list.push_back({property.name, property.help, static_cast<double>(value)});
  }
}

void AddTickers(const rocksdb::Statistics& statistics, std::vector<StoreStatistic>& list) {
  constexpr double kMicroseconds = 1e-6;
  const Ticker tickers[] = {
      {rocksdb::BYTES_WRITTEN, "rocksdb_written_bytes_total", "Written by the server."},
      {rocksdb::NUMBER_KEYS_WRITTEN, "rocksdb_written_keys_total", "Keys written by the server."},
      {rocksdb::WAL_FILE_BYTES, "rocksdb_wal_bytes_total", "Written to the write-ahead log."},
      {rocksdb::WAL_FILE_SYNCED, "rocksdb_wal_syncs_total", "Syncs of the write-ahead log."},
      {rocksdb::FLUSH_WRITE_BYTES, "rocksdb_flush_written_bytes_total", "Written by flushes."},
      {rocksdb::COMPACT_READ_BYTES, "rocksdb_compaction_read_bytes_total", "Read by compactions."},
      {rocksdb::COMPACT_WRITE_BYTES, "rocksdb_compaction_written_bytes_total",
       "Written by compactions."},
      {rocksdb::BLOCK_CACHE_HIT, "rocksdb_block_cache_hits_total", "Blocks found in the cache."},
      {rocksdb::BLOCK_CACHE_MISS, "rocksdb_block_cache_misses_total", "Blocks read from disk."},
      {rocksdb::STALL_MICROS, "rocksdb_write_stall_seconds_total",
       "Time that writes waited for flushes and compactions.", kMicroseconds},
  };
  for (const Ticker& ticker : tickers) {
    const auto count = static_cast<double>(statistics.getTickerCount(ticker.ticker));
    list.push_back({ticker.name, ticker.help, count * ticker.unit});
  }
}

}  // namespace

std::vector<StoreStatistic> StatisticsOf(rocksdb::DB& db) {
  std::vector<StoreStatistic> list;
  AddProperties(db, list);
  const std::shared_ptr<rocksdb::Statistics> statistics = db.GetDBOptions().statistics;
  if (statistics != nullptr) AddTickers(*statistics, list);
  return list;
}

std::vector<StoreStatistic> RocksStore::ReadStatistics() const {
  absl::ReaderMutexLock lock(&life_);
  return db_ == nullptr ? std::vector<StoreStatistic>() : StatisticsOf(*db_);
}

bool RocksStore::Behind() const {
  absl::ReaderMutexLock lock(&life_);
  if (db_ == nullptr || !failure_.Get().ok()) return false;  // then Write fails at once
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    uint64_t full = 0;
    db_->GetIntProperty(family, rocksdb::DB::Properties::kNumImmutableMemTable, &full);
    if (full >= kBehindWriteBuffers) return true;
    std::string tables;
    int count = 0;
    if (compacts_.load() && db_->GetProperty(family, "rocksdb.num-files-at-level0", &tables) &&
        absl::SimpleAtoi(tables, &count) && count >= kBehindTables) {
      return true;
    }
  }
  return false;
}

// Recursive, so that the other folders still count if one is deleted in the meantime.
int64_t FolderBytes(const std::string& folder) {
  namespace fs = std::filesystem;
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code file_error;
    if (at->is_directory(file_error) && !at->is_symlink(file_error)) {
      bytes += FolderBytes(at->path().string());
    } else if (at->is_regular_file(file_error)) {
      const auto size = at->file_size(file_error);
      if (!file_error) bytes += static_cast<int64_t>(size);
    }
  }
  return bytes;
}

int64_t FolderMeter::Bytes() {
  const absl::Duration now = MonotonicNow();
  absl::MutexLock lock(&mutex_);
  if (!counted_at_.has_value() || now - *counted_at_ >= kFolderFreshness) {
    bytes_ = FolderBytes(folder_);
    counted_at_ = now;
  }
  return bytes_;
}

}  // namespace cairn
