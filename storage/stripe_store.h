// Stripes on disk, in RocksDB. Nothing outside storage/ knows RocksDB.
//
// What is kept: the server's identity and boot count, variables (their spec as opaque bytes), per
// shard an update count, per worker the incarnation, sequence and position of the last published
// epoch, the decisions of synchronous jobs, and per stripe its header (watermarks) with either one
// dense image or rows by key. storage/FORMAT.md gives the bytes; tests/storage holds golden ones.
//
// Thread safety: every method of StripeStore may be called from several threads at once, but
// batches of one stripe are written in the order in which Write is called for them, so callers
// serialize those.
#pragma once

#include <cstdint>
#include <functional>
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
#include "storage/side_threads.h"
#include "storage/stored_rows.h"

namespace cairn {

// Highest sequence of `worker` that is in a stripe (or shard).
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
  int64_t sequence = 0;  // applied and, once its epoch is synced, durable
  std::string position;  // opaque
  bool left = false;     // it left or was lost, and has not come back
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

// Whose pushes make the mean of a step.
struct DecisionRecord {
  std::string job;
  int64_t step = 0;                              // >= 1
  std::vector<NamedContribution> contributions;  // by worker and sequence
  bool operator==(const DecisionRecord&) const = default;
};

// What the server keeps of itself.
struct NoteRecord {
  std::string name;  // not empty
  std::string text;  // opaque
  bool operator==(const NoteRecord&) const = default;
};

// One stripe's changes: header, image, rows. Written whole or not at all.
// Thread safety: none; one thread fills and writes it.
class StripeBatch {
 public:
  virtual ~StripeBatch() = default;
  virtual void SetWatermarks(absl::Span<const Watermark> watermarks) = 0;
  // The whole of a dense stripe: values and slots, laid out by the caller. Copied.
  virtual void PutImage(absl::Span<const absl::string_view> pieces) = 0;
  // One embedding row: metadata, values and slots, laid out by the caller. Copied.
  // A key put again counts with its last bytes.
  virtual void PutRow(int64_t key, absl::string_view bytes) = 0;
  // One embedding row on its own, where ReadCold finds it. Copied.
  virtual void PutCold(int64_t key, absl::string_view bytes) = 0;
  // There is no such row of `key`, nor was there one that ReadCold and ScanCold find.
  virtual void DropCold(int64_t key) = 0;
  // The row of `key` is no longer among those that LoadStripes shows, unless it is put again.
  virtual void PutGone(int64_t key) = 0;
  // How many rows of the stripe are cold alone once this is written.
  virtual void SetColdCount(int64_t rows) = 0;
  // A page of the stripe's waiting keys, laid out by the caller. Copied.
  virtual void PutWaiting(uint32_t page, absl::string_view bytes) = 0;
  // How old the stripe's rows are, laid out by the caller. Copied.
  virtual void PutAges(absl::string_view bytes) = 0;
  // True: nothing of the stripe is on disk, or so much has been written again that this batch
  // replaces all of its rows. It must get every one of them, changed or not, if it gets any.
  virtual bool wants_every_row() const = 0;
  // Sums up and moves what PutRow has gathered, once that is much: the slow part of a large batch,
  // for callers who hold a lock while they put rows and none while they call this.
  virtual void Settle() = 0;
  virtual size_t bytes() const = 0;
};

// What LoadStripes hands over. Views are valid during the call only.
class StripeVisitor {
 public:
  virtual ~StripeVisitor() = default;
  // Before the stripe's image or rows. A non-OK status ends the load and is returned.
  virtual absl::Status Header(const StripeId& id, absl::Span<const Watermark> watermarks) = 0;
  virtual absl::Status Image(const StripeId& id, absl::string_view bytes) = 0;
  // Some of its rows. A key comes again where its row was written again: the last one counts. Rows
  // of no bytes say that their keys' rows are not there any more.
  virtual absl::Status Rows(const StripeId& id, const StoredRows& rows) = 0;
  // After its rows: how many others it has, which are cold. Not called where there were never any.
  virtual absl::Status ColdCount(const StripeId&, int64_t) { return absl::OkStatus(); }
  // After those: a page of its waiting keys as it was put last.
  virtual absl::Status Waiting(const StripeId&, uint32_t /*page*/, absl::string_view /*bytes*/) {
    return absl::OkStatus();
  }
  // As it was put last; not called where it never was.
  virtual absl::Status Ages(const StripeId&, absl::string_view /*bytes*/) {
    return absl::OkStatus();
  }
};

struct StoreOptions {
  std::string directory;     // made if absent (its parent must exist)
  int32_t server_index = 0;  // must equal the one the directory was made for
  size_t block_cache_bytes = 32u << 20;
  size_t write_buffer_bytes = 64u << 20;
};

// One of RocksDB's own numbers, for monitoring.
struct StoreFigure {
  std::string name;  // as in "rocksdb_memtable_bytes"; one that only rises ends in _total
  std::string help;
  double value = 0;
};

class StripeStore {
 public:
  virtual ~StripeStore() = default;

  // Opens or makes the store; raises and syncs its boot count. Nothing is ever deleted.
  // kFailedPrecondition: another format, another server's index, a folder with foreign files, in
  // use (by whom, where the system tells). kNotFound: the parent folder is missing.
  // kPermissionDenied, kResourceExhausted (disk full), kDataLoss (a corrupted file, by name),
  // kUnavailable (other I/O errors).
  //
  // After the first failed write, sync or background flush every later write and sync fails with
  // that failure's status (kResourceExhausted for a full disk), until the store is opened again:
  // what was written before is kept, reading goes on.
  static absl::StatusOr<std::unique_ptr<StripeStore>> Open(const StoreOptions& options);
  // Opens a finished store for reading, beside any number of other readers, without a change to the
  // folder. Errors as Open.
  static absl::StatusOr<std::unique_ptr<StripeStore>> OpenReadOnly(const StoreOptions& options);

  // How often this directory has been opened, this time included; > 0.
  virtual int64_t boot_count() const = 0;

  // Written and synced.
  virtual absl::Status PutVariable(const VariableRecord& record) = 0;
  virtual absl::StatusOr<std::vector<VariableRecord>> Variables() const = 0;
  // Whole variables whose stripes are written already, with their job's workers: one batch, synced.
  virtual absl::Status PutJob(absl::Span<const VariableRecord> variables,
                              absl::Span<const ShardRecord> shards,
                              absl::Span<const WorkerRecord> workers) = 0;
  // A variable's record and shards as they are from now on, without the stripes in `gone`: one
  // batch, synced.
  virtual absl::Status PutMap(const VariableRecord& record, absl::Span<const ShardRecord> shards,
                              absl::Span<const StripeId> gone) = 0;
  // Removes shards and stripes of variables [first, end), which have no record: what PutJob did not
  // come to.
  virtual absl::Status DropLeftovers(uint32_t first, uint32_t end) = 0;
  // Removes the job's variables with all their stripes, its workers and its decisions. Synced.
  virtual absl::Status DropJob(absl::string_view job) = 0;

  virtual std::unique_ptr<StripeBatch> NewBatch(const StripeId& id) = 0;
  // In RocksDB's WAL when it returns (survives the process), on the disk after Sync.
  virtual absl::Status Write(StripeBatch& batch) = 0;
  // Whether tables are written more slowly than what they are made of: whoever goes on will soon
  // have to wait in Write, and everybody else with them. Who can wait waits until it is over.
  virtual bool Behind() const = 0;
  // The end of an epoch, one batch: how far shards and workers are.
  virtual absl::Status WriteEpoch(absl::Span<const ShardRecord> shards,
                                  absl::Span<const WorkerRecord> workers) = 0;
  // Everything written before is on the disk when it returns.
  virtual absl::Status Sync() = 0;

  // In RocksDB's WAL when it returns, on the disk after Sync, or with `sync`.
  virtual absl::Status PutDecision(const DecisionRecord& record, bool sync) = 0;
  // Removes the job's decisions of steps up to `step`.
  virtual absl::Status DropDecisions(absl::string_view job, int64_t step) = 0;
  // Of all jobs; those of one are in the order of steps.
  virtual absl::StatusOr<std::vector<DecisionRecord>> Decisions() const = 0;

  // Each takes the place of the one of its name: one batch, synced.
  virtual absl::Status PutNotes(absl::Span<const NoteRecord> notes) = 0;
  virtual absl::StatusOr<std::vector<NoteRecord>> Notes() const = 0;

  virtual absl::StatusOr<std::vector<ShardRecord>> Shards() const = 0;
  virtual absl::StatusOr<std::vector<WorkerRecord>> Workers() const = 0;
  // Every stripe in [first, end), in (variable, shard, stripe) order, without cold rows, rows as
  // they were written, checksums verified. Ranges that do not overlap may be loaded by several
  // threads at once.
  virtual absl::Status LoadStripes(const StripeId& first, const StripeId& end,
                                   StripeVisitor& visitor) const = 0;
  // Every stripe of `variable`.
  absl::Status LoadStripes(uint32_t variable, StripeVisitor& visitor) const {
    return LoadStripes({.variable = variable}, {.variable = variable + 1}, visitor);
  }

  // The cold rows of `keys`, which are sorted and none of them named twice, each of `row_bytes`
  // bytes. kDataLoss: a row is damaged, or of another size.
  virtual absl::Status ReadCold(absl::Span<const ColdKey> keys, size_t row_bytes,
                                ColdRows& rows) const = 0;
  // Help with a ReadCold of many keys, and whoever has several to do.
  virtual SideThreads& readers() const = 0;
  // Calls `visit` for the stripe's cold rows from key `first` on, in the order of keys, until it
  // returns false. Views are valid during the call only.
  virtual absl::Status ScanCold(
      const StripeId& id, int64_t first,
      absl::FunctionRef<bool(int64_t key, absl::string_view row)> visit) const = 0;
  // Memory that finding cold rows takes, beside StoreOptions::block_cache_bytes: some 2.5 bytes for
  // each of their records. It rises and falls with them.
  virtual int64_t ColdLookupBytes() const = 0;
  // True: notes, durably, that what is written from here on is not whole before
  // SetUnfinished(false) says so; a store that is opened with the note is refused (kDataLoss).
  virtual absl::Status SetUnfinished(bool unfinished) = 0;

  // Copies the store as it is now into `folder`, a store folder then (storage/directory.h): tables
  // by hard links where the file system allows, everything synced. Writes go on meanwhile. The
  // folder must not exist, its parent must; on failure it may be there, incomplete.
  // kResourceExhausted: a disk is full.
  virtual absl::Status Checkpoint(const std::string& folder) = 0;

  // After the last LoadStripes of a server's start: begins the background compaction, which would
  // take disk and cores from the loading.
  virtual absl::Status StartCompaction() = 0;

  // In memory: reads no file. Empty once closed.
  virtual std::vector<StoreFigure> Figures() const = 0;
  // Of every file in the folder, as the file system said some seconds ago at most.
  virtual int64_t DiskBytes() const = 0;

  // Syncs and closes. Later calls fail. Also done, without a report, by the destructor.
  virtual absl::Status Close() = 0;
};

}  // namespace cairn
