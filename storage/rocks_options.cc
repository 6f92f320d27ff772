#include "storage/rocks_options.h"

#include "rocksdb/cache.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/slice_transform.h"
#include "rocksdb/statistics.h"
#include "rocksdb/table.h"

namespace cairn {
namespace {

// The part of a cold row's key that precedes the row's own key (FORMAT.md).
constexpr size_t kColdPrefixBytes = 14;

std::shared_ptr<rocksdb::TableFactory> MakeTableFactory(const StoreOptions& options) {
  rocksdb::BlockBasedTableOptions table;
  // The only cache. Rows are served from the server's memory, so the cache holds indexes and the
  // blocks of small reads. Indexes are charged to it; otherwise they would grow with the disk
  // outside every budget.
  table.block_cache = rocksdb::NewLRUCache(options.block_cache_bytes);
  table.cache_index_and_filter_blocks = true;
  // Reads are scans: larger blocks mean a smaller index (with 4 KiB, 4 times as large) and fewer
  // checksums. No single row is looked up, so no Bloom filter is needed.
  table.block_size = 16 << 10;
  table.checksum = rocksdb::kXXH3;
  // A scan reads blocks in order, so the system should read far ahead. (The scan's own
  // readahead_size would copy every block once more, through a buffer of that size.)
  table.initial_auto_readahead_size = table.max_auto_readahead_size = 4 << 20;
  table.format_version = 5;
  return std::shared_ptr<rocksdb::TableFactory>(rocksdb::NewBlockBasedTableFactory(table));
}

// Cold rows are looked up one by one, in any order.
std::shared_ptr<rocksdb::TableFactory> MakeColdTableFactory(
    const rocksdb::BlockBasedTableOptions& main, bool lookups) {
  rocksdb::BlockBasedTableOptions table = main;
  table.block_size = 4 << 10;  // read by one lookup
  // Delta-encodes the index's keys too, except every fourth.
  table.index_block_restart_interval = 4;
  // 1 % of the lookups of absent keys read a block.
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  if (lookups) {
    // Filters and indexes stay in memory while their table is in use
    // (StripeStore::ColdLookupBytes); in pieces, through the cache, they took half of a lookup.
    // Blocks are not cached, because a row that has been read is in memory from then on.
    table.cache_index_and_filter_blocks = false;
    table.no_block_cache = true;
    table.block_cache = nullptr;
  }
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  table.data_block_hash_table_util_ratio = 0.75;
  return std::shared_ptr<rocksdb::TableFactory>(rocksdb::NewBlockBasedTableFactory(table));
}

// RocksDB's maintenance of its own files.
void SetHousekeeping(rocksdb::Options& options) {
  options.stats_dump_period_sec = 0;  // statistics in LOG are not read
  options.stats_persist_period_sec = 0;
  // Only counters, one per core: for ReadStatistics().
  options.statistics = rocksdb::CreateDBStatistics();
  options.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
  options.max_manifest_file_size = 16 << 20;  // default 1 GiB, read whole at every open
  // Each open file takes a descriptor of a limit that is often 1024 and that sockets share.
  options.max_open_files = 256;
  // Otherwise opening reads the properties of every file: seconds for a large store, and useful
  // only for compaction's estimates.
  options.skip_stats_update_on_db_open = true;
}

// Properties that must hold after a crash.
void SetDurability(rocksdb::Options& options) {
  // Every write is in the WAL and, when Write returns, in the operating system.
  options.manual_wal_flush = false;
  // A crash can leave the last record of a WAL incomplete. It was never acknowledged as synced, and
  // is dropped. Corruption anywhere else means that acknowledged writes are lost, and this mode
  // refuses to open. kPointInTimeRecovery, the default, would drop everything after the corruption
  // and open as if nothing had happened; kAbsoluteConsistency would refuse after every crash.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  // Detects a synced WAL that is missing or too short, which the mode above cannot detect.
  options.track_and_verify_wals_in_manifest = true;
  options.paranoid_checks = true;
  // RocksDB must not retry after an I/O error: the store refuses writes until it is opened again,
  // and says so (see Failure in rocks_store.h).
  options.max_bgerror_resume_count = 0;
}

}  // namespace

rocksdb::Options MakeRocksOptions(const StoreOptions& store) {
  rocksdb::Options options;
  options.table_factory = MakeTableFactory(store);
  // One buffer fills while others are flushed, and one more is for writers that do not check
  // whether the store is behind. Together they take the memory of two buffers of the requested
  // size.
  constexpr int kWriteBuffers = static_cast<int>(kBehindWriteBuffers) + 1;
  options.max_write_buffer_number = kWriteBuffers;
  options.write_buffer_size = 2 * store.write_buffer_bytes / kWriteBuffers;
  options.level0_file_num_compaction_trigger = kCompactedTables;
  // By default, the size of fewer tables would begin a compaction too.
  options.max_bytes_for_level_base = kCompactedTables * options.write_buffer_size;
  options.level0_slowdown_writes_trigger = kDelayTables;
  options.level0_stop_writes_trigger = kStopTables;
  // For a server with a budget of up to 512 MiB, malloc maps each block separately and unmaps it
  // when the buffer is flushed: smaller blocks between other allocations would leave unusable
  // holes. For larger budgets it reuses the blocks (SetUpServerProcess), which saves a page fault
  // for each page of a snapshot.
  options.arena_block_size = 512 << 10;
  // Limit for both column families together, which is the amount charged for them.
  options.db_write_buffer_size = 2 * store.write_buffer_bytes;
  // A log is deleted when its contents for both families are in tables.
  options.max_total_wal_size = 8 * store.write_buffer_bytes;
  // One flush and one compaction at a time: the server's threads need the other cores.
  options.max_background_jobs = 2;
  options.compaction_style = rocksdb::kCompactionStyleLevel;
  // Keeps dead versions of rewritten images to about a tenth of the live bytes.
  options.level_compaction_dynamic_level_bytes = true;
  // Trained float32 values do not compress: see lz4_rows in storage_bench.
  options.compression = rocksdb::kNoCompression;
  // Writes dirty pages to disk steadily instead of all at once when a snapshot is synced.
  options.bytes_per_sync = 1 << 20;
  options.wal_bytes_per_sync = 1 << 20;
  SetHousekeeping(options);
  SetDurability(options);
  return options;
}

rocksdb::ColumnFamilyOptions MakeColdOptions(const rocksdb::Options& main, bool lookups) {
  rocksdb::ColumnFamilyOptions options(main);
  options.table_factory = MakeColdTableFactory(
      *main.table_factory->GetOptions<rocksdb::BlockBasedTableOptions>(), lookups);
  // A row is rewritten whenever it is evicted after a change, in any order. Levels would copy each
  // row about ten times; runs of similar size copy it three or four times.
  options.compaction_style = rocksdb::kCompactionStyleUniversal;
  options.level_compaction_dynamic_level_bytes = false;  // only for levels
  options.compaction_options_universal.allow_trivial_move = true;
  options.level0_file_num_compaction_trigger = 10;
  // Most lookups miss the write buffer.
  options.memtable_prefix_bloom_size_ratio = 0.02;
  options.memtable_whole_key_filtering = true;
  // A batch has rows of one stripe in key order, so the search for each position starts at the
  // previous row instead of at the beginning.
  options.memtable_insert_with_hint_prefix_extractor.reset(
      rocksdb::NewFixedPrefixTransform(kColdPrefixBytes));
  return options;
}

rocksdb::ReadOptions MakeScanOptions() {
  rocksdb::ReadOptions options;
  options.verify_checksums = true;
  options.fill_cache = false;  // a scan reads every block once
  return options;
}

}  // namespace cairn
