#include "storage/rocks_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/blocking.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/scoped_unlock.h"
#include "common/status.h"
#include "rocksdb/env.h"
#include "rocksdb/slice.h"
#include "rocksdb/sst_file_reader.h"
#include "rocksdb/write_batch.h"
#include "storage/directory.h"
#include "storage/key.h"
#include "storage/rocks_options.h"
#include "storage/rocks_status.h"
#include "storage/row_segment.h"

namespace cairn {
namespace {

// More threads would take the cores from other requests.
constexpr size_t kMostReaders = 4;

// In addition to the calling thread.
size_t ReaderCount() {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostReaders) - 1;
}

constexpr size_t kMaxLogBytes = 4 << 20;  // twice that on disk: LOG and LOG.old

// Records failures of RocksDB's flushes and compactions, which run outside any call.
class FailureListener : public rocksdb::EventListener {
 public:
  FailureListener(Failure& failure, std::string context)
      : failure_(failure), context_(std::move(context)) {}
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* error) override {
    failure_.Set(FromRocks(*error, context_)).IgnoreError();
  }

 private:
  Failure& failure_;  // of the store, which closes the database before it is destroyed
  const std::string context_;
};

// Tables in `path` that cannot be opened, with reasons; RocksDB attributes them to the MANIFEST.
std::vector<std::string> UnreadableTables(const std::string& path) {
  std::vector<std::string> unreadable;
  std::vector<std::string> names;
  if (!rocksdb::Env::Default()->GetChildren(path, &names).ok()) return unreadable;
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, ".sst")) continue;
    rocksdb::SstFileReader reader{rocksdb::Options()};
    const rocksdb::Status status = reader.Open(absl::StrCat(path, "/", name));
    if (!status.ok()) unreadable.push_back(absl::StrCat(name, ": ", status.ToString()));
  }
  return unreadable;
}

// The newest log file in `path`; empty if there is none.
std::string NewestLog(const std::string& path) {
  std::string newest;
  std::vector<std::string> names;
  if (!rocksdb::Env::Default()->GetChildren(path, &names).ok()) return newest;
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, ".log")) continue;
    if (std::pair(name.size(), name) > std::pair(newest.size(), newest)) newest = name;
  }
  return newest;
}

}  // namespace

absl::Status Failure::Set(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) status_ = status;
  failed_.store(!status_.ok(), std::memory_order_release);
  return status_;
}

absl::Status Failure::Get() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  return status_;
}

RocksStore::RocksStore(const StoreOptions& options, bool read_only)
    : directory_(options.directory),
      read_only_(read_only),
      files_(directory_),
      synced_note_(directory_),
      readers_(ReaderCount()),
      logged_snapshot_bytes_(options.logged_snapshot_bytes) {}

RocksStore::~RocksStore() { Close().IgnoreError(); }

std::string RocksStore::Context(absl::string_view what) const {
  return absl::StrCat("store ", directory_, ": ", what);
}

absl::StatusOr<std::unique_ptr<StripeStore>> RocksStore::Open(const StoreOptions& options) {
  const std::string context = absl::StrCat("open store ", options.directory);
  const absl::StatusOr<DirectoryState> state =
      PrepareDirectory(options.directory, options.server_index);
  if (!state.ok()) return Annotate(state.status(), context);
  const bool create = *state == DirectoryState::kNew;
  CAIRN_CRASH_POINT("start: folder marked");
  absl::StatusOr<Descriptor> lock = LockDirectory(options.directory, *state);
  if (!lock.ok()) return Annotate(lock.status(), context);
  std::unique_ptr<RocksStore> store(new RocksStore(options, /*read_only=*/false));
  store->lock_.Reset(lock->Release());
  RETURN_IF_ERROR(Annotate(store->OpenDatabase(options, create), context));
  CAIRN_CRASH_POINT("start: database open");
  RETURN_IF_ERROR(Annotate(store->Boot(options, create), context));
  CAIRN_CRASH_POINT("start: boot counted");
  if (create) RETURN_IF_ERROR(Annotate(FinishDirectory(options.directory), context));
  store->log_->Attach(LogPath(options.directory));
  return store;
}

absl::Status RocksStore::OpenDatabase(const StoreOptions& options, bool create) {
  const std::string path = DatabasePath(directory_);
  // RocksDB writes some files before it finds the lock taken, so check for the usual case here.
  if (const auto holder = LockHolder(path + "/LOCK"); holder.has_value()) return InUse(*holder);

  log_ = std::make_shared<RocksLog>(kMaxLogBytes);
  rocksdb::Options rocks = MakeRocksOptions(options);
  rocks.create_if_missing = create;
  rocks.disable_auto_compactions = true;  // until StartCompaction
  rocks.info_log = log_;
  rocks.listeners.push_back(
      std::make_shared<FailureListener>(failure_, Context("background work stopped")));
  absl::MutexLock lock(&life_);
  const std::string newest_log = NewestLog(path);  // recovery removes it
  const rocksdb::Status opened = OpenFamilies(rocks, path);
  if (!opened.ok()) return OpenError(opened, path);
  // Set as a failure, so that Close does not write another note.
  return failure_.Set(CheckSynced(newest_log));
}

absl::Status RocksStore::CheckSynced(absl::string_view newest_log) const {
  ASSIGN_OR_RETURN(const uint64_t synced, synced_note_.Read());
  const uint64_t found = db_->GetLatestSequenceNumber();
  if (found >= synced) return absl::OkStatus();
  return DataLoss(DatabasePath(directory_), " ends with write ", found, ", though ",
                  synced_note_.path(), " says that ", synced, " were synced: ",
                  newest_log.empty() ? "its newest log (.log) was removed"
                                     : absl::StrCat(newest_log,
                                                    " was cut short or is corrupt at its end, or a "
                                                    "newer log was removed"),
                  ": check the disk and restore the directory from a copy; without ",
                  synced_note_.path(),
                  " the server starts with the rest, and workers report the pushes that it lost");
}

absl::Status RocksStore::OpenError(const rocksdb::Status& status, const std::string& path) const {
  const std::string text = status.ToString();
  // The folder itself was checked before, so one of RocksDB's own files is missing.
  if (status.IsIOError() && absl::StrContains(text, std::strerror(ENOENT))) {
    return DataLoss("RocksDB in ", path, ": ", text, ": a file is missing (a MANIFEST: or ", path,
                    "/CURRENT, which names it, is corrupt): check the disk "
                    "and restore the directory from a copy");
  }
  if (absl::StrContains(text, "lock hold by current process")) return InUse("this process");
  if (absl::StrContains(text, "While lock file") &&
      absl::StrContains(text, std::strerror(EAGAIN))) {
    return InUse(LockHolder(path + "/LOCK").value_or("another process"));
  }
  std::string what = absl::StrCat("RocksDB in ", path);
  if (status.IsCorruption()) {
    std::vector<std::string> hints = UnreadableTables(path);
    // The deletion of a log is the last entry of a MANIFEST.
    if (const auto current = ReadSmallFile(absl::StrCat(path, "/CURRENT"));
        current.ok() && absl::StrContains(text, "Missing WAL")) {
      hints.push_back(absl::StrCat("or the end of ", absl::StripTrailingAsciiWhitespace(*current)));
    }
    const std::string warnings = log_->Warnings();
    if (!warnings.empty()) hints.push_back(warnings);
    if (!hints.empty()) absl::StrAppend(&what, " (", absl::StrJoin(hints, "; "), ")");
  }
  return FromRocks(status, what);
}

absl::Status RocksStore::ReadMeta(const StoreOptions& options, bool create) {
  const std::string key = MetaKey();
  std::string value;
  const rocksdb::Status read = db_->Get(rocksdb::ReadOptions(), key, &value);
  if (read.ok()) {
    ASSIGN_OR_RETURN(meta_, DecodeMeta(key, value));
  } else if (read.IsNotFound() && create) {
    meta_.server_index = options.server_index;
  } else if (read.IsNotFound()) {
    return DataLoss(DatabasePath(directory_), " has no meta record though ",
                    "a store was made here: restore the directory from a copy");
  } else {
    return FromRocks(read, "read the meta record");
  }
  if (meta_.format != kFormatVersion) {
    return FailedPrecondition("the database has format ", meta_.format,
                              ", this program reads and writes format ", kFormatVersion,
                              ": use the program that made it");
  }
  if (meta_.server_index != options.server_index) {
    return FailedPrecondition("the database belongs to ps:", meta_.server_index,
                              ", this is ps:", options.server_index,
                              ": give every server its own data directory");
  }
  return absl::OkStatus();
}

absl::Status RocksStore::Boot(const StoreOptions& options, bool create) {
  absl::ReaderMutexLock lock(&life_);
  RETURN_IF_ERROR(ReadMeta(options, create));
  ++meta_.boot_count;
  const std::string key = MetaKey();
  rocksdb::WriteBatch batch;
  RETURN_IF_ERROR(FromRocks(batch.Put(key, EncodeMeta(key, meta_)), "meta record"));
  return Commit(batch, /*sync=*/true, "raise the boot count");
}

absl::Status RocksStore::CheckUsable() const {
  if (db_ == nullptr) return absl::FailedPreconditionError(Context("the store is closed"));
  if (read_only_) return absl::FailedPreconditionError(Context("opened read-only"));
  return failure_.Get();
}

absl::Status RocksStore::Commit(rocksdb::WriteBatch& batch, bool sync, absl::string_view what) {
  RETURN_IF_ERROR(CheckUsable());
  rocksdb::WriteOptions options;
  options.sync = sync;
  const Blocking blocking;
  const rocksdb::Status written = db_->Write(options, &batch);
  if (written.ok()) return absl::OkStatus();
  return failure_.Set(FromRocks(written, Context(what)));
}

absl::Status RocksStore::Scan(absl::string_view prefix, absl::string_view what,
                              const Record& record) const {
  return Scan(prefix, PrefixEnd(prefix), what, record);
}

absl::Status RocksStore::Scan(absl::string_view first, absl::string_view end,
                              absl::string_view what, const Record& record) const {
  if (db_ == nullptr) return absl::FailedPreconditionError(Context("the store is closed"));
  const rocksdb::Slice end_slice = ToSlice(end);  // the iterator keeps a pointer to it
  rocksdb::ReadOptions options = MakeScanOptions();
  options.iterate_upper_bound = &end_slice;
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options));
  for (at->Seek(ToSlice(first)); at->Valid(); at->Next()) {
    RETURN_IF_ERROR(record(FromSlice(at->key()), FromSlice(at->value())));
  }
  return FromRocks(at->status(), Context(what));
}

absl::Status RocksStore::PutVariable(const VariableRecord& record) {
  absl::ReaderMutexLock lock(&life_);
  if (record.id == 0) {
    return InvalidArgument("variable \"", record.name, "\": id 0 is not allowed, ids start at 1");
  }
  const std::string key = VariableKey(record.id);
  rocksdb::WriteBatch batch;
  RETURN_IF_ERROR(FromRocks(batch.Put(key, EncodeVariable(key, record)), Context("variable")));
  return Commit(batch, /*sync=*/true, absl::StrCat("write variable \"", record.name, "\""));
}

absl::StatusOr<std::vector<VariableRecord>> RocksStore::ListVariables() const {
  std::vector<VariableRecord> variables;
  RETURN_IF_ERROR(Scan(KindPrefix(RecordKind::kVariable), "list variables",
                       [&](absl::string_view key, absl::string_view value) -> absl::Status {
                         ASSIGN_OR_RETURN(variables.emplace_back(), DecodeVariable(key, value));
                         return absl::OkStatus();
                       }));
  return variables;
}

absl::StatusOr<std::vector<VariableRecord>> RocksStore::Variables() const {
  absl::ReaderMutexLock lock(&life_);
  absl::StatusOr<std::vector<VariableRecord>> variables = ListVariables();
  if (!variables.ok()) return Annotate(variables.status(), Context("list variables"));
  return variables;
}

absl::Status RocksStore::PutJob(absl::string_view job, absl::Span<const VariableRecord> variables,
                                absl::Span<const ShardRecord> shards,
                                absl::Span<const WorkerRecord> workers) {
  absl::ReaderMutexLock lock(&life_);
  rocksdb::WriteBatch batch;
  if (job.size() <= kMaxJobBytes) {
    for (const std::string& prefix : {WorkersPrefix(job), DecisionsPrefix(job)}) {
      RETURN_IF_ERROR(FromRocks(batch.DeleteRange(prefix, PrefixEnd(prefix)), Context("old job")));
    }
  }
  RETURN_IF_ERROR(FillEpoch(shards, workers, batch));
  for (const VariableRecord& record : variables) {
    const std::string key = VariableKey(record.id);
    RETURN_IF_ERROR(FromRocks(batch.Put(key, EncodeVariable(key, record)), Context("variable")));
  }
  return Commit(batch, /*sync=*/true, "write a job");
}

absl::Status RocksStore::PutDecision(const DecisionRecord& record, bool sync) {
  absl::ReaderMutexLock lock(&life_);
  if (record.job.size() > kMaxJobBytes || record.step < 1) {
    return InvalidArgument("a decision of step ", record.step, " of a job whose name has ",
                           record.job.size(), " bytes; allowed are 1 or more, and ", kMaxJobBytes);
  }
  rocksdb::WriteBatch batch;
  const std::string key = DecisionKey(record.job, record.step);
  RETURN_IF_ERROR(
      FromRocks(batch.Put(key, EncodeDecision(key, record)), Context("fill a decision's batch")));
  return Commit(batch, sync, "write a decision");
}

absl::Status RocksStore::DropDecisions(absl::string_view job, int64_t step) {
  absl::ReaderMutexLock lock(&life_);
  if (job.size() > kMaxJobBytes || step < 1) return absl::OkStatus();
  rocksdb::WriteBatch batch;
  RETURN_IF_ERROR(FromRocks(batch.DeleteRange(DecisionsPrefix(job), DecisionKey(job, step + 1)),
                            Context("drop decisions")));
  return Commit(batch, /*sync=*/false, "drop decisions");
}

absl::Status RocksStore::PutNotes(absl::Span<const NoteRecord> notes) {
  absl::ReaderMutexLock lock(&life_);
  rocksdb::WriteBatch batch;
  for (const NoteRecord& note : notes) {
    const std::string key = NoteKey(note.name);
    RETURN_IF_ERROR(
        FromRocks(batch.Put(key, EncodeNote(key, note)), Context("fill a note's batch")));
  }
  return Commit(batch, /*sync=*/true, "write notes");
}

absl::Status RocksStore::SyncOnce() {
  const Blocking blocking;
  uint64_t sequence = db_->GetLatestSequenceNumber();  // of everything written so far
  {
    absl::MutexLock lock(&unlogged_set_mutex_);
    if (!unlogged_.empty()) sequence = std::min(sequence, logged_through_);
  }
  const rocksdb::Status synced = db_->SyncWAL();
  if (synced.ok()) {
    RETURN_IF_ERROR(failure_.Set(CheckInPlace(directory_, lock_.get())));
    return failure_.Set(synced_note_.Write(sequence));
  }
  return failure_.Set(FromRocks(synced, Context("sync the log")));
}

absl::Status RocksStore::Sync() {
  absl::ReaderMutexLock lock(&life_);
  RETURN_IF_ERROR(CheckUsable());
  absl::MutexLock sync_lock(&sync_mutex_);
  // A running fsync may have started before the caller's writes, so only the next one counts.
  const int64_t needed = syncs_started_ + 1;
  while (syncs_finished_ < needed) {
    if (sync_running_) {
      const Blocking blocking;
      sync_done_.Wait(&sync_mutex_);  // ends with the fsync of another caller
      continue;
    }
    sync_running_ = true;
    const int64_t started = ++syncs_started_;
    const absl::Cleanup ended = [&] {
      sync_running_ = false;
      sync_done_.SignalAll();
    };
    {
      const ScopedUnlock unlock(&sync_mutex_);
      SyncOnce().IgnoreError();  // failure_ keeps the error for all waiting callers
    }
    syncs_finished_ = started;
  }
  return failure_.Get();
}

template <typename T>
absl::StatusOr<std::vector<T>> RocksStore::List(
    RecordKind kind, absl::string_view what,
    absl::StatusOr<T> (*decode)(absl::string_view key, absl::string_view value)) const {
  absl::ReaderMutexLock lock(&life_);
  std::vector<T> records;
  const absl::Status scanned = Scan(
      KindPrefix(kind), what, [&](absl::string_view key, absl::string_view value) -> absl::Status {
        ASSIGN_OR_RETURN(records.emplace_back(), decode(key, value));
        return absl::OkStatus();
      });
  if (!scanned.ok()) return Annotate(scanned, Context(what));
  return records;
}

absl::StatusOr<std::vector<ShardRecord>> RocksStore::Shards() const {
  return List(RecordKind::kShard, "list shards", DecodeShard);
}

absl::StatusOr<std::vector<WorkerRecord>> RocksStore::Workers() const {
  return List(RecordKind::kWorker, "list workers", DecodeWorker);
}

absl::StatusOr<std::vector<DecisionRecord>> RocksStore::Decisions() const {
  return List(RecordKind::kDecision, "list decisions", DecodeDecision);
}

absl::StatusOr<std::vector<NoteRecord>> RocksStore::Notes() const {
  return List(RecordKind::kNote, "list notes", DecodeNote);
}

absl::Status RocksStore::LoadStripes(const StripeId& first, const StripeId& end,
                                     StripeVisitor& visitor) const {
  absl::ReaderMutexLock lock(&life_);
  std::vector<Watermark> watermarks;
  StripeId current;  // variable 0: none yet
  SegmentRanges ranges;
  const auto visit = [&](absl::string_view key, absl::string_view value) -> absl::Status {
    ASSIGN_OR_RETURN(const StripeKey parsed, ParseStripeKey(key));
    const bool is_first = parsed.id != current;
    current = parsed.id;
    if (parsed.part == StripePart::kHeader) {
      RETURN_IF_ERROR(DecodeHeader(key, value, watermarks));
      return visitor.Header(parsed.id, watermarks);
    }
    if (is_first) RETURN_IF_ERROR(visitor.Header(parsed.id, {}));  // no worker's sequences
    if (parsed.part == StripePart::kRows) {
      ranges[parsed.id].Add(parsed.segment, value.size(), IsOfEveryRow(value));
      ASSIGN_OR_RETURN(const StoredRows rows, ReadRowSegment(key, value));
      return visitor.Rows(parsed.id, rows);
    }
    if (parsed.part == StripePart::kColdCount) {
      ASSIGN_OR_RETURN(const int64_t rows, DecodeColdCount(key, value));
      return visitor.ColdCount(parsed.id, rows);
    }
    ASSIGN_OR_RETURN(const absl::string_view bytes, VerifyChecksum(key, value));
    if (parsed.part == StripePart::kWaiting) {
      return visitor.Waiting(parsed.id, parsed.segment, bytes);
    }
    if (parsed.part == StripePart::kAges) return visitor.Ages(parsed.id, bytes);
    return visitor.Image(parsed.id, bytes);
  };
  StripeKeys first_keys(first);
  StripeKeys end_keys(end);
  RETURN_IF_ERROR(Scan(first_keys.Header(), end_keys.Header(),
                       absl::StrCat("load variable ", first.variable), visit));
  absl::MutexLock segments_lock(&segments_mutex_);
  for (const auto& [id, range] : ranges) segments_.try_emplace(id, range);
  return absl::OkStatus();
}

absl::Status RocksStore::StartCompaction() {
  absl::ReaderMutexLock lock(&life_);
  if (db_ == nullptr) return absl::FailedPreconditionError(Context("the store is closed"));
  compacts_.store(true);
  return FromRocks(db_->EnableAutoCompaction(families_), Context("start the compaction"));
}

absl::Status RocksStore::Close() {
  absl::MutexLock lock(&life_);
  if (db_ == nullptr) return absl::OkStatus();
  absl::Status result = failure_.Get();
  if (result.ok() && !read_only_) result = SyncOnce();
  // Spares the next start reading the WAL. If the flush fails, the WAL has the data, except stripes
  // of a snapshot that failed, which count as not written.
  if (result.ok() && !read_only_) {
    db_->Flush(rocksdb::FlushOptions(), families_).PermitUncheckedError();
  }
  CloseFamilies();
  const rocksdb::Status closed = db_->Close();
  if (result.ok()) result = FromRocks(closed, Context("close"));
  db_.reset();
  lock_.Reset();
  return result;
}

absl::StatusOr<std::unique_ptr<StripeStore>> StripeStore::Open(const StoreOptions& options) {
  return RocksStore::Open(options);
}

}  // namespace cairn
