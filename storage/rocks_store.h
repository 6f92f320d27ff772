// StripeStore on RocksDB. Internal to storage/: it names RocksDB.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/descriptor.h"
#include "rocksdb/db.h"
#include "rocksdb/listener.h"
#include "rocksdb/write_batch.h"
#include "storage/record.h"
#include "storage/rocks_batch.h"
#include "storage/rocks_figures.h"
#include "storage/rocks_log.h"
#include "storage/side_threads.h"
#include "storage/stripe_store.h"
#include "storage/synced_note.h"

namespace cairn {

// The first failure of the disk. RocksDB stops background work after one and may or may not refuse
// the next write; the store refuses every one, so that nothing is acknowledged that an earlier
// failed fsync may have lost. Thread safety: any thread may call any method.
class Failure {
 public:
  // Keeps the first of them and returns it.
  absl::Status Set(const absl::Status& status);
  // OK while there is none; one atomic load then.
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
                      absl::Span<const StripeId> gone) override;
  absl::Status PutJob(absl::Span<const VariableRecord> variables,
                      absl::Span<const ShardRecord> shards,
                      absl::Span<const WorkerRecord> workers) override;
  absl::Status DropLeftovers(uint32_t first, uint32_t end) override;
  std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) override;
  absl::Status Write(StripeBatch& batch) override;
  bool Behind() const override;
  absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                          absl::Span<const WorkerRecord> workers) override;
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
  SideThreads& readers() const override { return readers_; }
  absl::Status ScanCold(
      const StripeId& id, int64_t first,
      absl::FunctionRef<bool(int64_t key, absl::string_view row)> visit) const override;
  int64_t ColdLookupBytes() const override;
  absl::Status SetUnfinished(bool unfinished) override;
  absl::Status StartCompaction() override;
  std::vector<StoreFigure> Figures() const override;
  int64_t DiskBytes() const override { return files_.Bytes(); }
  absl::Status Close() override;

 private:
  RocksStore(std::string directory, bool read_only);

  using Record = std::function<absl::Status(absl::string_view key, absl::string_view value)>;

  absl::Status OpenDatabase(const StoreOptions& options, bool create);
  absl::Status OpenDatabaseReadOnly(const StoreOptions& options);
  // Opens both column families, so far as a database that is read alone has them.
  rocksdb::Status OpenFamilies(const rocksdb::Options& options, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(life_);
  void CloseFamilies() ABSL_EXCLUSIVE_LOCKS_REQUIRED(life_);
  // Some of the keys of a ReadCold, from the one numbered `first` on, which is their first.
  absl::Status ReadPiece(absl::Span<const ColdKey> keys, size_t first, size_t row_bytes,
                         ColdRows& rows) const;
  // Of variables [first, end).
  rocksdb::Status DropCold(rocksdb::WriteBatch& batch, uint32_t first, uint32_t end) const
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  // Why the database in `path` did not open.
  absl::Status OpenError(const rocksdb::Status& status, const std::string& path) const;
  // Reads the meta record, checks it, and stores it with a raised boot count.
  absl::Status Boot(const StoreOptions& options, bool create);
  absl::Status ReadMeta(const StoreOptions& options, bool create) ABSL_SHARED_LOCKS_REQUIRED(life_);
  // `what` is of this store: "store DIR: what".
  std::string Context(absl::string_view what) const;
  absl::Status CheckUsable() const ABSL_SHARED_LOCKS_REQUIRED(life_);
  absl::Status Commit(rocksdb::WriteBatch& batch, bool sync, absl::string_view what)
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  // Calls `record` for every key that begins with `prefix`, in order.
  absl::Status Scan(absl::string_view prefix, absl::string_view what, const Record& record) const
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  // … for every key in [first, end).
  absl::Status Scan(absl::string_view first, absl::string_view end, absl::string_view what,
                    const Record& record) const ABSL_SHARED_LOCKS_REQUIRED(life_);
  // Whether there is a record with a key in [first, end).
  absl::StatusOr<bool> HasAny(absl::string_view first, absl::string_view end,
                              rocksdb::ColumnFamilyHandle* family) const
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  absl::Status FillEpoch(absl::Span<const ShardRecord> shards,
                         absl::Span<const WorkerRecord> workers, rocksdb::WriteBatch& batch) const;
  absl::StatusOr<std::vector<VariableRecord>> ListVariables() const
      ABSL_SHARED_LOCKS_REQUIRED(life_);
  // That nothing is missing of what was synced before this start.
  absl::Status CheckSynced(absl::string_view newest_log) const ABSL_SHARED_LOCKS_REQUIRED(life_);
  absl::Status SyncOnce() ABSL_SHARED_LOCKS_REQUIRED(life_);
  // The row segments of `id`: as noted, else as found on disk, and noted then.
  absl::StatusOr<SegmentRange> Segments(const StripeId& id) ABSL_SHARED_LOCKS_REQUIRED(life_);

  const std::string directory_;
  const bool read_only_;
  MetaRecord meta_;
  Failure failure_;
  std::shared_ptr<RocksLog> log_;
  mutable FolderMeter files_;
  Descriptor lock_;         // of the marker
  SyncedNote synced_note_;  // of whoever opens, or syncs: one thread at a time

  // Calls hold it shared; Close holds it alone, so that it runs when no call does.
  mutable absl::Mutex life_;
  std::unique_ptr<rocksdb::DB> db_ ABSL_GUARDED_BY(life_);  // nullptr: closed
  std::vector<rocksdb::ColumnFamilyHandle*> families_ ABSL_GUARDED_BY(life_);
  // The one of cold rows; nullptr: it has none.
  rocksdb::ColumnFamilyHandle* cold_ ABSL_GUARDED_BY(life_) = nullptr;

  mutable SideThreads readers_;

  // Row segments of the stripes that were loaded or written.
  mutable absl::Mutex segments_mutex_;
  mutable absl::flat_hash_map<StripeId, SegmentRange> segments_ ABSL_GUARDED_BY(segments_mutex_);

  // Group commit: whoever finds no fsync running starts one for all who have come by then.
  absl::Mutex sync_mutex_;
  absl::CondVar sync_done_;
  bool sync_running_ ABSL_GUARDED_BY(sync_mutex_) = false;
  int64_t syncs_started_ ABSL_GUARDED_BY(sync_mutex_) = 0;
  int64_t syncs_finished_ ABSL_GUARDED_BY(sync_mutex_) = 0;
};

}  // namespace cairn
