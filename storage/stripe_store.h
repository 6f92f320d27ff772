// Stripes on disk, in RocksDB. Nothing outside storage/ depends on RocksDB.
//
// The store keeps the server's identity and boot count; variables (with their specs as opaque
// bytes); an update count for each shard; for each worker the incarnation, sequence and position of
// the last published snapshot; the decisions of synchronous jobs; and for each stripe its header
// (watermarks) with either one dense image or rows by key. storage/FORMAT.md specifies the bytes;
// tests/storage has golden ones.
//
// Thread safety: every method of StripeStore may be called from several threads at once. Batches of
// one stripe are written in the order in which Write is called for them, so callers must serialize
// those calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "storage/cold_rows.h"
#include "storage/helper_pool.h"
#include "storage/stored_rows.h"

namespace cairn {

// Highest sequence of `worker` that is applied to a stripe (or shard).
struct Watermark {
  int32_t worker = 0;
  int64_t sequence = 0;
  bool operator==(const Watermark&) const = default;
};

struct VariableRecord {
  uint32_t id = 0;  // > 0; chosen by the caller, unique in the store, never reused
  std::string job;
  std::string name;
  std::string spec;  // opaque
  bool operator==(const VariableRecord&) const = default;
};

struct ShardRecord {
  uint32_t variable = 0;
  uint32_t shard = 0;
  int64_t update_count = 0;
  std::vector<Watermark> watermarks;
  bool operator==(const ShardRecord&) const = default;
};

struct WorkerRecord {
  std::string job;
  int32_t worker = 0;
  int64_t incarnation = 0;
  int64_t sequence = 0;  // applied and, once its snapshot is synced, durable
  std::string position;  // opaque
  bool left = false;     // it left or was lost, and has not returned
  bool operator==(const WorkerRecord&) const = default;
};

// One worker's push that counts for a step of a synchronous job.
struct NamedContribution {
  int32_t worker = 0;
  int64_t incarnation = 0;
  int64_t sequence = 0;
  int64_t rows = 0;      // its weight; > 0
  std::string position;  // opaque
  bool operator==(const NamedContribution&) const = default;
};

// The pushes that make up the mean of a step.
struct DecisionRecord {
  std::string job;
  int64_t step = 0;                              // >= 1
  std::vector<NamedContribution> contributions;  // by worker and sequence
  bool operator==(const DecisionRecord&) const = default;
};

// A note that the server stores about itself.
struct NoteRecord {
  std::string name;  // not empty
  std::string text;  // opaque
  bool operator==(const NoteRecord&) const = default;
};

// One stripe's changes: header, image, rows. Written completely or not at all.
// Thread safety: none; one thread fills and writes it.
class StripeBatch {
 public:
  virtual ~StripeBatch() = default;
  virtual void SetWatermarks(absl::Span<const Watermark> watermarks) = 0;
  // The complete image of a dense stripe: values and slots, laid out by the caller. Copied.
  virtual void PutImage(absl::Span<const absl::string_view> pieces) = 0;
  // One embedding row: metadata, values and slots, laid out by the caller. Copied. If a key is put
  // more than once, the last bytes count.
  virtual void PutRow(int64_t key, absl::string_view bytes) = 0;
  // One cold embedding row, which ReadCold returns. Copied.
  virtual void PutCold(int64_t key, absl::string_view bytes) = 0;
  // Removes the cold row of `key`, if there is one, so that ReadCold and ScanCold do not find it.
  virtual void DropCold(int64_t key) = 0;
  // Removes the row of `key`: LoadStripes no longer returns it, unless it is put again.
  virtual void PutGone(int64_t key) = 0;
  // Sets how many of the stripe's rows are only in cold records once this batch is written.
  virtual void SetColdCount(int64_t rows) = 0;
  // A page of the stripe's waiting keys, laid out by the caller. Copied.
  virtual void PutWaiting(uint32_t page, absl::string_view bytes) = 0;
  // The ages of the stripe's rows, laid out by the caller. Copied.
  virtual void PutAges(absl::string_view bytes) = 0;
  // True if nothing of the stripe is on disk, or if so many rows have been rewritten that this
  // batch replaces all of them. Then it must contain every row, changed or not, if it contains any.
  virtual bool wants_every_row() const = 0;
  // Checksums and moves the rows that PutRow has gathered, if there are many. This is the slow part
  // of a large batch: callers put rows under a lock, and call Settle without the lock.
  virtual void Settle() = 0;
  virtual size_t bytes() const = 0;
};

// Receives the results of LoadStripes. Views are valid only during the call.
class StripeVisitor {
 public:
  virtual ~StripeVisitor() = default;
  // Called before the stripe's image or rows. A non-OK status ends the load and is returned.
  virtual absl::Status Header(const StripeId& id, absl::Span<const Watermark> watermarks) = 0;
  virtual absl::Status Image(const StripeId& id, absl::string_view bytes) = 0;
  // Some of the stripe's rows. A key repeats if its row was rewritten; the last one counts. An
  // empty row means that its key's row no longer exists.
  virtual absl::Status Rows(const StripeId& id, const StoredRows& rows) = 0;
  // The number of the stripe's rows that are only in cold records. Called after Rows, and only if
  // the stripe ever had such rows.
  virtual absl::Status ColdCount(const StripeId&, int64_t) { return absl::OkStatus(); }
  // A page of the stripe's waiting keys, as put last. Called after ColdCount.
  virtual absl::Status Waiting(const StripeId&, uint32_t /*page*/, absl::string_view /*bytes*/) {
    return absl::OkStatus();
  }
  // The ages of the stripe's rows, as put last. Not called if they were never put.
  virtual absl::Status Ages(const StripeId&, absl::string_view /*bytes*/) {
    return absl::OkStatus();
  }
};

struct StoreOptions {
  std::string directory;     // created if absent (its parent must exist)
  int32_t server_index = 0;  // must equal the index for which the directory was created
  size_t block_cache_bytes = 32u << 20;
  size_t write_buffer_bytes = 64u << 20;
  size_t logged_snapshot_bytes = 32u << 20;  // see WriteInSnapshot
};

// One of RocksDB's own statistics, for monitoring.
struct StoreStatistic {
  std::string name;  // "rocksdb_memtable_bytes"; a counter's name ends in _total
  std::string help;
  double value = 0;
};

class StripeStore {
 public:
  virtual ~StripeStore() = default;

  // Opens or creates the store; increments and syncs its boot count. Never deletes anything.
  // kFailedPrecondition: another format, another server's index, a folder with foreign files, or in
  // use (names the process if the system tells). kNotFound: the parent directory is missing.
  // kPermissionDenied, kResourceExhausted (disk full), kDataLoss (a corrupt file, by name),
  // kUnavailable (other I/O errors).
  //
  // After the first failed write, sync or background flush, every later write and sync fails with
  // the status of that failure (kResourceExhausted for a full disk) until the store is opened
  // again. Data written before is kept, and reads continue to work.
  static absl::StatusOr<std::unique_ptr<StripeStore>> Open(const StoreOptions& options);
  // Opens a finished store for reading, together with any number of other readers, without changing
  // the folder. Errors as Open.
  static absl::StatusOr<std::unique_ptr<StripeStore>> OpenReadOnly(const StoreOptions& options);

  // How often this directory has been opened, including this time; > 0.
  virtual int64_t boot_count() const = 0;

  // Stores the record. It is synced when the call returns.
  virtual absl::Status PutVariable(const VariableRecord& record) = 0;
  virtual absl::StatusOr<std::vector<VariableRecord>> Variables() const = 0;
  // Ends a restore: stores the records of the job's variables, whose stripes have been written, and
  // of its workers, and removes the workers and decisions of an earlier job of that name, in one
  // batch, and syncs.
  virtual absl::Status PutJob(absl::string_view job, absl::Span<const VariableRecord> variables,
                              absl::Span<const ShardRecord> shards,
                              absl::Span<const WorkerRecord> workers) = 0;
  // Replaces a variable's record and shards, and removes the stripes in `removed`, in one batch,
  // and syncs.
  virtual absl::Status PutMap(const VariableRecord& record, absl::Span<const ShardRecord> shards,
                              absl::Span<const StripeId> removed) = 0;
  // Removes the shards and stripes of variables [first, end) that have no record. A restore that
  // was interrupted before PutJob leaves such variables behind.
  virtual absl::Status DropLeftovers(uint32_t first, uint32_t end) = 0;
  // Removes the job's variables with all their stripes, its workers and its decisions, and syncs.
  virtual absl::Status DropJob(absl::string_view job) = 0;

  // The batch must not outlive the store.
  virtual std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) = 0;
  // Writes the batch to RocksDB's WAL. When the call returns, the batch survives the process; after
  // Sync, it survives the machine.
  virtual absl::Status Write(StripeBatch& batch) = 0;
  // Writes the batch as a part of a snapshot, of which there is one at a time. Only its first
  // StoreOptions::logged_snapshot_bytes go through the WAL, and nothing if the snapshot before was
  // more than four times as large, so that a large snapshot is written once and not twice. A crash
  // may lose each of the other batches as a whole, before SettleSnapshot or a Write to the same
  // stripe has returned.
  virtual absl::Status WriteInSnapshot(StripeBatch& batch) = 0;
  // Ends the snapshot. When the call returns, its batches survive the process, and those that are
  // not in the WAL also the machine.
  virtual absl::Status SettleSnapshot() = 0;
  // Whether write buffers fill faster than they are written as tables, or tables come faster than
  // they are compacted, so that Write will soon block all callers. Callers that can wait should
  // wait until this is false.
  virtual bool Behind() const = 0;
  // Publishes a snapshot in one batch: the states of shards and workers, and the changes of
  // `stripes`, which become null. The stripes have images and no rows.
  virtual absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                                  absl::Span<const WorkerRecord> workers,
                                  absl::Span<std::unique_ptr<StripeBatch>> stripes) = 0;
  absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                          absl::Span<const WorkerRecord> workers) {
    return WriteEpoch(shards, workers, {});
  }
  // Syncs everything written before, but for batches that WriteInSnapshot has not put into the WAL.
  virtual absl::Status Sync() = 0;

  // Stores the decision. It survives the process when the call returns, and the machine after Sync,
  // or at once with `sync`.
  virtual absl::Status PutDecision(const DecisionRecord& record, bool sync) = 0;
  // Removes the job's decisions of steps up to `step`.
  virtual absl::Status DropDecisions(absl::string_view job, int64_t step) = 0;
  // The decisions of all jobs; those of one job are ordered by step.
  virtual absl::StatusOr<std::vector<DecisionRecord>> Decisions() const = 0;

  // Stores the notes in one batch, and syncs. A note replaces the one of the same name.
  virtual absl::Status PutNotes(absl::Span<const NoteRecord> notes) = 0;
  virtual absl::StatusOr<std::vector<NoteRecord>> Notes() const = 0;

  virtual absl::StatusOr<std::vector<ShardRecord>> Shards() const = 0;
  virtual absl::StatusOr<std::vector<WorkerRecord>> Workers() const = 0;
  // Loads every stripe in [first, end), ordered by variable, shard and stripe, and verifies
  // checksums. Returns rows in the order in which they were written, without cold rows. Several
  // threads may load disjoint ranges at once.
  virtual absl::Status LoadStripes(const StripeId& first, const StripeId& end,
                                   StripeVisitor& visitor) const = 0;
  // Loads every stripe of `variable`.
  absl::Status LoadStripes(uint32_t variable, StripeVisitor& visitor) const {
    return LoadStripes({.variable = variable}, {.variable = variable + 1}, visitor);
  }

  // The cold rows of `keys`, which must be sorted and distinct. Each row has `row_bytes` bytes.
  // kDataLoss: a row is corrupt or has another size.
  virtual absl::Status ReadCold(absl::Span<const ColdKey> keys, size_t row_bytes,
                                ColdRows& rows) const = 0;
  // Helper threads for a ReadCold of many keys, and for callers with several ReadColds.
  virtual HelperPool& readers() const = 0;
  // Calls `visit` for the stripe's cold rows from key `first` on, ordered by key, until it returns
  // false. Views are valid only during the call. kDataLoss: as ReadCold.
  virtual absl::Status ScanCold(
      const StripeId& id, int64_t first, size_t row_bytes,
      absl::FunctionRef<bool(int64_t key, absl::string_view row)> visit) const = 0;
  // Memory for finding cold rows, in addition to StoreOptions::block_cache_bytes: some 2.5 bytes
  // for each cold record. It changes with their number.
  virtual int64_t ColdLookupBytes() const = 0;
  // SetUnfinished(true) records durably that the data written from now on is inconsistent, until
  // SetUnfinished(false). Opening a store with that record is refused (kDataLoss).
  virtual absl::Status SetUnfinished(bool unfinished) = 0;

  // Copies the store's present state into `folder`, which becomes a store folder
  // (storage/directory.h): tables by hard links if the file system allows, everything synced.
  // Writes continue in the meantime. The folder must not exist, its parent must; after a failure it
  // may exist, incomplete. kResourceExhausted: a disk is full.
  virtual absl::Status Checkpoint(const std::string& folder) = 0;

  // Starts background compaction. Call it after the last LoadStripes of a server's start, because
  // compaction would take disk and cores from loading.
  virtual absl::Status StartCompaction() = 0;

  // RocksDB's statistics. Reads no file. Empty once the store is closed.
  virtual std::vector<StoreStatistic> ReadStatistics() const = 0;
  // Bytes of every file in the folder, at most some seconds old.
  virtual int64_t DiskBytes() const = 0;

  // Syncs and closes. Later calls fail. The destructor does the same but does not report errors.
  virtual absl::Status Close() = 0;
};

}  // namespace cairn
