#include "storage/rocks_options.h"

#include "rocksdb/cache.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/slice_transform.h"
#include "rocksdb/statistics.h"
#include "rocksdb/table.h"

namespace cairn {
namespace {

// Of a cold row's key: all before the row's (FORMAT.md).
constexpr size_t kColdPrefixBytes = 14;

std::shared_ptr<rocksdb::TableFactory> MakeTableFactory(const StoreOptions& options) {
  rocksdb::BlockBasedTableOptions table;
  // The only cache: rows are served from the server's memory, so it holds indexes and the blocks of
  // small reads. Indexes are charged to it, or they would grow with the disk outside every budget.
  table.block_cache = rocksdb::NewLRUCache(options.block_cache_bytes);
  table.cache_index_and_filter_blocks = true;
  // Reading is scanning: larger blocks mean a smaller index (4 KiB: 4 times as large) and fewer
  // checksums, and no single row is looked up, so no Bloom filter either.
  table.block_size = 16 << 10;
  table.checksum = rocksdb::kXXH3;
  // A scan's blocks come in order: the system is told to read far ahead of them. (The scan's own
  // readahead_size would copy every block once more, through a buffer of that size.)
  table.initial_auto_readahead_size = table.max_auto_readahead_size = 4 << 20;
  table.format_version = 5;
  return std::shared_ptr<rocksdb::TableFactory>(rocksdb::NewBlockBasedTableFactory(table));
}

// Cold rows are looked up one by one, in any order.
std::shared_ptr<rocksdb::TableFactory> MakeColdTableFactory(
    const rocksdb::BlockBasedTableOptions& main, bool lookups) {
  rocksdb::BlockBasedTableOptions table = main;
  table.block_size = 4 << 10;  // what a lookup reads
  // The index's keys, too, are kept as what differs from the one before, but for each fourth.
  table.index_block_restart_interval = 4;
  // 1 % of the keys that are nowhere cost a block.
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  if (lookups) {
    // Filters and indexes stay in memory while their table is in use
    // (StripeStore::ColdLookupBytes): in pieces, by way of the cache, they took half of a lookup.
    // And a block that was read is not asked for again: its row is in memory from then on.
    table.cache_index_and_filter_blocks = false;
    table.no_block_cache = true;
    table.block_cache = nullptr;
  }
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  table.data_block_hash_table_util_ratio = 0.75;
  return std::shared_ptr<rocksdb::TableFactory>(rocksdb::NewBlockBasedTableFactory(table));
}

// How RocksDB looks after its own files.
void SetHousekeeping(rocksdb::Options& options) {
  options.stats_dump_period_sec = 0;  // nobody reads statistics in LOG
  options.stats_persist_period_sec = 0;
  // Counts alone, one a core each: for Figures().
  options.statistics = rocksdb::CreateDBStatistics();
  options.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
  options.max_manifest_file_size = 16 << 20;  // default 1 GiB, read whole at every open
  // Each open file costs a descriptor out of a limit that is often 1024, and sockets need theirs.
  options.max_open_files = 256;
  // Opening reads every file's properties otherwise: seconds for a large store, and only
  // compaction's guesses gain by it.
  options.skip_stats_update_on_db_open = true;
}

// What must hold after a crash.
void SetDurability(rocksdb::Options& options) {
  // Every write goes to the WAL and, when Write returns, to the operating system.
  options.manual_wal_flush = false;
  // A crash can leave the last record of a WAL incomplete: it was never acknowledged as synced, and
  // is dropped. Damage anywhere else means that acknowledged writes are gone, and this mode refuses
  // to open. kPointInTimeRecovery, the default, would drop everything after the damage and open as
  // if nothing had happened; kAbsoluteConsistency would refuse after every crash.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  // Finds a synced WAL that is missing or shorter than it was, which the mode above cannot see.
  options.track_and_verify_wals_in_manifest = true;
  options.paranoid_checks = true;
  // After an I/O error nothing is retried behind our back: the store refuses writes until it is
  // opened again, and says so (see Failure in rocks_store.cc).
  options.max_bgerror_resume_count = 0;
}

}  // namespace

rocksdb::Options MakeRocksOptions(const StoreOptions& store) {
  rocksdb::Options options;
  options.table_factory = MakeTableFactory(store);
  // One fills while others are flushed, and one more for those who do not look whether the store is
  // behind: as much memory as two of the size that was asked for.
  constexpr int kWriteBuffers = static_cast<int>(kBehindWriteBuffers) + 1;
  options.max_write_buffer_number = kWriteBuffers;
  options.write_buffer_size = 2 * store.write_buffer_bytes / kWriteBuffers;
  // They are smaller than RocksDB's own, and the level below is copied for each such number.
  options.level0_file_num_compaction_trigger = 6;
  // Large enough that malloc maps each by itself and unmaps it when the buffer is written: among
  // others' memory the pieces of write buffers leave holes that nobody can use.
  options.arena_block_size = 1 << 20;
  // Both column families together, which is what they are charged for.
  options.db_write_buffer_size = 2 * store.write_buffer_bytes;
  // A log goes when what it holds of either is in a table.
  options.max_total_wal_size = 8 * store.write_buffer_bytes;
  // One flush and one compaction at a time: the server's threads need the other cores.
  options.max_background_jobs = 2;
  options.compaction_style = rocksdb::kCompactionStyleLevel;
  // Keeps dead versions of rewritten images to about a tenth of the live bytes.
  options.level_compaction_dynamic_level_bytes = true;
  // Trained float32 values do not shrink: see lz4_rows in storage_bench.
  options.compression = rocksdb::kNoCompression;
  // Hands dirty pages to the disk steadily instead of all at once when an epoch is synced.
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
  // A row is written again whenever it leaves memory changed, in any order: levels would copy each
  // about ten times, runs of like size do it three or four times.
  options.compaction_style = rocksdb::kCompactionStyleUniversal;
  options.level_compaction_dynamic_level_bytes = false;  // of levels
  options.compaction_options_universal.allow_trivial_move = true;
  options.level0_file_num_compaction_trigger = 10;
  options.level0_slowdown_writes_trigger = 20;
  options.level0_stop_writes_trigger = 36;
  // Most lookups miss the write buffer.
  options.memtable_prefix_bloom_size_ratio = 0.02;
  options.memtable_whole_key_filtering = true;
  // A batch has rows of one stripe in the order of their keys: the place of each is looked for from
  // that of the one before it, not from the beginning.
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
