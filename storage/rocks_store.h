// StripeStore on RocksDB. Internal to storage/, because it includes RocksDB.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/hash/hash.h"
#include "absl/synchronization/mutex.h"
#include "common/descriptor.h"
#include "rocksdb/db.h"
#include "rocksdb/listener.h"
#include "rocksdb/write_batch.h"
#include "storage/helper_pool.h"
#include "storage/record.h"
#include "storage/rocks_batch.h"
#include "storage/rocks_log.h"
#include "storage/rocks_statistics.h"
#include "storage/stripe_store.h"
#include "storage/synced_note.h"

namespace cairn {

// The first disk failure. After one, RocksDB stops background work and may or may not refuse the
// next write. The store refuses every write, so that it does not acknowledge data that an earlier
// failed fsync may have lost. Thread safety: any thread may call any method.
class Failure {
 public:
  // Keeps the first failure and returns it.
  absl::Status Set(const absl::Status& status);
  // OK if there was no failure, which costs one atomic load.
  absl::Status Get() const;

 private:
  std::atomic<bool> failed_{false};
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

class RocksStore : public StripeStore {
 public:
  // Opens `options.directory` as StripeStore::Open describes.
  static absl::StatusOr<std::unique_ptr<StripeStore>> Open(const StoreOptions& options);
  static absl::StatusOr<std::unique_ptr<StripeStore>> OpenReadOnly(const StoreOptions& options);
  ~RocksStore() override;

  int64_t boot_count() const override { return meta_.boot_count; }
  absl::Status PutVariable(const VariableRecord& record) override;
  absl::StatusOr<std::vector<VariableRecord>> Variables() const override;
  absl::Status DropJob(absl::string_view job) override;
  absl::Status PutMap(const VariableRecord& record, absl::Span<const ShardRecord> shards,
                      absl::Span<const StripeId> removed) override;
  absl::Status PutJob(absl::string_view job, absl::Span<const VariableRecord> variables,
                      absl::Span<const ShardRecord> shards,
                      absl::Span<const WorkerRecord> workers) override;
  absl::Status DropLeftovers(uint32_t first, uint32_t end) override;
  std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) override;
  absl::Status Write(StripeBatch& batch) override;
  absl::Status WriteInSnapshot(StripeBatch& batch) override;
  absl::Status SettleSnapshot() override;
  bool Behind() const override;
  using StripeStore::WriteEpoch;
  absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                          absl::Span<const WorkerRecord> workers,
                          absl::Span<std::unique_ptr<StripeBatch>> stripes) override;
  absl::Status Sync() override;
  absl::Status PutDecision(const DecisionRecord& record, bool sync) override;
  absl::Status DropDecisions(absl::string_view job, int64_t step) override;
  absl::StatusOr<std::vector<DecisionRecord>> Decisions() const override;
  absl::Status PutNotes(absl::Span<const NoteRecord> notes) override;
  absl::StatusOr<std::vector<NoteRecord>> Notes() const override;
  absl::StatusOr<std::vector<ShardRecord>> Shards() const override;
  absl::StatusOr<std::vector<WorkerRecord>> Workers() const override;
  using StripeStore::LoadStripes;
  absl::Status LoadStripes(const StripeId& first, const StripeId& end,
                           StripeVisitor& visitor) const override;
  absl::Status Checkpoint(const std::string& folder) override;
  absl::Status ReadCold(absl::Span<const ColdKey> keys, size_t row_bytes,
                        ColdRows& rows) const override;
  HelperPool& readers() const override { return readers_; }
  absl::Status ScanCold(
      const StripeId& id, int64_t first, size_t row_bytes,
      absl::FunctionRef<bool(int64_t key, absl::string_view row)> visit) const override;
  int64_t ColdLookupBytes() const override;
  absl::Status SetUnfinished(bool unfinished) override;
  absl::Status StartCompaction() override;
  std::vector<StoreStatistic> ReadStatistics() const override;
  int64_t DiskBytes() const override { return files_.Bytes(); }
  absl::Status Close() override;

 private:
  RocksStore(const StoreOptions& options, bool read_only);

  using Record = std::function<absl::Status(absl::string_view key, absl::string_view value)>;

  absl::Status OpenDatabase(const StoreOptions& options, bool create);
  absl::Status OpenDatabaseReadOnly(const StoreOptions& options);
  // Opens both column families, or those that a database opened for reading only has.
  rocksdb::Status OpenFamilies(const rocksdb::Options& options, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(life_);
  void CloseFamilies() ABSL_EXCLUSIVE_LOCKS_REQUIRED(life_);
  // Reads a part of ReadCold's keys; `first` is the index of keys[0] in ReadCold's result.
  // `key`: of the record.
  absl::Status CheckColdRow(absl::string_view key, absl::string_view row, size_t row_bytes) const;
  absl::Status ReadPiece(absl::Span<const ColdKey> keys, size_t first, size_t row_bytes,
                         ColdRows& rows) const;
  // Drops the cold rows of variables [first, end).
  rocksdb::Status DropCold(rocksdb::WriteBatch& batch, uint32_t first, uint32_t end) const
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  // The error for a database in `path` that could not be opened.
  absl::Status OpenError(const rocksdb::Status& status, const std::string& path) const;
  // Reads and checks the meta record, and stores it with an incremented boot count.
  absl::Status Boot(const StoreOptions& options, bool create);
  absl::Status ReadMeta(const StoreOptions& options, bool create) ABSL_SHARED_LOCKS_REQUIRED(life_);
  // Adds this store's name: "store DIR: what".
  std::string Context(absl::string_view what) const;
  absl::Status CheckUsable() const ABSL_SHARED_LOCKS_REQUIRED(life_);
  absl::Status Commit(rocksdb::WriteBatch& batch, bool sync, absl::string_view what)
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  // Calls `record` for every key that begins with `prefix`, in order.
  absl::Status Scan(absl::string_view prefix, absl::string_view what, const Record& record) const
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  // Calls `record` for every key in [first, end), in order.
  absl::Status Scan(absl::string_view first, absl::string_view end, absl::string_view what,
                    const Record& record) const ABSL_SHARED_LOCKS_REQUIRED(life_);
  // All records of one kind.
  template <typename T>
  absl::StatusOr<std::vector<T>> List(RecordKind kind, absl::string_view what,
                                      absl::StatusOr<T> (*decode)(absl::string_view key,
                                                                  absl::string_view value)) const;
  // Whether there is a record with a key in [first, end).
  absl::StatusOr<bool> HasAny(absl::string_view first, absl::string_view end,
                              rocksdb::ColumnFamilyHandle* family) const
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  absl::Status FillEpoch(absl::Span<const ShardRecord> shards,
                         absl::Span<const WorkerRecord> workers, rocksdb::WriteBatch& batch) const;
  // Completes the batch. Its error if it cannot be written.
  absl::Status Finish(RocksStripeBatch& batch) ABSL_SHARED_LOCKS_REQUIRED(life_);
  absl::Status WriteFinished(RocksStripeBatch& batch, bool logged)
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  bool IsUnlogged(const StripeId& id) const;
  // Writes the batches that are in no log as tables, which are synced.
  absl::Status FlushUnlogged() ABSL_SHARED_LOCKS_REQUIRED(life_)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(unlogged_mutex_);
  absl::StatusOr<std::vector<VariableRecord>> ListVariables() const
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  // Checks that everything synced before this start is still there.
  absl::Status CheckSynced(absl::string_view newest_log) const ABSL_SHARED_LOCKS_REQUIRED(life_);
  absl::Status SyncOnce() ABSL_SHARED_LOCKS_REQUIRED(life_);
  // Returns the row segments of `id` from the cache, or else finds them on disk and caches them.
  absl::StatusOr<SegmentRange> Segments(const StripeId& id) ABSL_SHARED_LOCKS_REQUIRED(life_);

  const std::string directory_;
  const bool read_only_;
  MetaRecord meta_;
  Failure failure_;
  std::shared_ptr<RocksLog> log_;
  mutable FolderMeter files_;
  Descriptor lock_;         // on the marker
  SyncedNote synced_note_;  // used by the thread that opens or syncs; one at a time

  // Calls hold it shared. Close holds it exclusively, so that it runs when no call does.
  mutable absl::Mutex life_;
  std::unique_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(life_);  // null: closed
  std::vector<rocksdb::ColumnFamilyHandle*> families_ ABSL_GUARDED_BY(life_);
  // The column family of cold rows; null: the database has none.
  rocksdb::ColumnFamilyHandle* cold_ ABSL_GUARDED_BY(life_) = nullptr;

  mutable HelperPool readers_;

  // Row segments of the stripes that have been loaded or written. Not a table of Abseil's, which is
  // unusable after an insertion for which there is no memory.
  using SegmentRanges = std::unordered_map<StripeId, SegmentRange, absl::Hash<StripeId>>;
  mutable absl::Mutex segments_mutex_;
  mutable SegmentRanges segments_ ABSL_GUARDED_BY(segments_mutex_);

  SpareBatches spare_batches_;
  std::atomic<bool> compacts_{false};  // since StartCompaction

  const size_t logged_snapshot_bytes_;
  // Held while a batch of a snapshot is written, and while unlogged batches are flushed.
  absl::Mutex unlogged_mutex_;
  mutable absl::Mutex unlogged_set_mutex_;  // held only to use the set
  // The stripes of batches that are in no log and in no table. A batch that is logged must not
  // follow them: after a crash, the stripe would lack the changes in between.
  // Changes while both mutexes are held.
  std::unordered_set<StripeId, absl::Hash<StripeId>> unlogged_ ABSL_GUARDED_BY(unlogged_set_mutex_);
  // RocksDB's sequence before the first of these batches: a crash keeps all that was synced up to
  // here.
  uint64_t logged_through_ ABSL_GUARDED_BY(unlogged_set_mutex_) = 0;
  size_t snapshot_bytes_ ABSL_GUARDED_BY(unlogged_mutex_) = 0;  // of this snapshot, so far
  // Whether the previous snapshot was several times as large as what is logged of one. This one is
  // probably too, and a log of its beginning would be in vain.
  bool after_large_ ABSL_GUARDED_BY(unlogged_mutex_) = false;
  // A write to one of its stripes flushed this snapshot before its end. The rest of it is logged,
  // so that frequent flushes do not make many small tables.
  bool log_rest_ ABSL_GUARDED_BY(unlogged_mutex_) = false;
  // Copies that are being made. A copy has the WAL of a later moment than the tables, so that a
  // batch that is flushed in between would be missing in both.
  int copies_ ABSL_GUARDED_BY(unlogged_mutex_) = 0;

  // Group commit: a caller that finds no running fsync starts one for all callers waiting by then.
  absl::Mutex sync_mutex_;
  absl::CondVar sync_done_;
  bool sync_running_ ABSL_GUARDED_BY(sync_mutex_) = false;
  int64_t syncs_started_ ABSL_GUARDED_BY(sync_mutex_) = 0;
  int64_t syncs_finished_ ABSL_GUARDED_BY(sync_mutex_) = 0;
};

}  // namespace cairn
