// Writes stripes, and the records that end a snapshot.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/blocking.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/status.h"
#include "rocksdb/write_batch.h"
#include "storage/directory.h"
#include "storage/key.h"
#include "storage/record.h"
#include "storage/rocks_batch.h"
#include "storage/rocks_status.h"
#include "storage/rocks_store.h"
#include "storage/row_segment.h"

namespace cairn {
namespace {

// How many times as large as the part of it that is logged a snapshot is for the next one to be
// expected to be large.
constexpr size_t kLargeSnapshot = 4;

}  // namespace

absl::StatusOr<SegmentRange> RocksStore::Segments(const StripeId& id) {
  {
    absl::MutexLock lock(&segments_mutex_);
    const auto noted = segments_.find(id);
    if (noted != segments_.end()) return noted->second;
  }
  SegmentRange range;
  RETURN_IF_ERROR(Scan(StripeKeys(id).RowsPrefix(), "list row segments",
                       [&](absl::string_view key, absl::string_view value) -> absl::Status {
                         ASSIGN_OR_RETURN(const StripeKey parsed, ParseStripeKey(key));
                         range.Add(parsed.segment, value.size(), IsOfEveryRow(value));
                         return absl::OkStatus();
                       }));
  absl::MutexLock lock(&segments_mutex_);
  segments_[id] = range;
  return range;
}

std::unique_ptr<StripeBatch> RocksStore::NewBatch(const StripeId& id) {
  absl::ReaderMutexLock lock(&life_);
  const absl::StatusOr<SegmentRange> segments = Segments(id);
  auto batch = std::make_unique<RocksStripeBatch>(id, segments.ok() ? *segments : SegmentRange{},
                                                  cold_, spare_batches_);
  if (!segments.ok()) batch->Refuse(segments.status());
  return batch;
}

absl::Status RocksStore::Finish(RocksStripeBatch& batch) {
  batch.Finish();
  RETURN_IF_ERROR(batch.refusal());
  if (!batch.status().ok()) return FromRocks(batch.status(), Context("fill a stripe's batch"));
  return CheckUsable();
}

absl::Status RocksStore::WriteFinished(RocksStripeBatch& batch, bool logged) {
  if (batch.empty()) return absl::OkStatus();
  rocksdb::WriteOptions options;
  options.disableWAL = !logged;
  const Blocking blocking;
  const rocksdb::Status written = db_->Write(options, &batch.batch());
  if (written.ok()) {
    absl::MutexLock segments_lock(&segments_mutex_);
    segments_[batch.id()] = batch.segments();
    return absl::OkStatus();
  }
  const StripeId& id = batch.id();
  return failure_.Set(FromRocks(
      written, Context(absl::StrCat("write stripe ", id.variable, "/", id.shard, "/", id.stripe))));
}

absl::Status RocksStore::Write(StripeBatch& batch) {
  absl::ReaderMutexLock lock(&life_);
  auto& changes = static_cast<RocksStripeBatch&>(batch);  // NewBatch creates no other type
  RETURN_IF_ERROR(Finish(changes));
  // Callers serialize the writes of one stripe, so none becomes unlogged after this check. Other
  // stripes do not wait for a flush.
  if (IsUnlogged(changes.id())) {
    const Blocking blocking;
    absl::MutexLock unlogged_lock(&unlogged_mutex_);
    if (IsUnlogged(changes.id())) {
      RETURN_IF_ERROR(FlushUnlogged());
      log_rest_ = true;
    }
  }
  return WriteFinished(changes, /*logged=*/true);
}

absl::Status RocksStore::WriteInSnapshot(StripeBatch& batch) {
  absl::ReaderMutexLock lock(&life_);
  auto& changes = static_cast<RocksStripeBatch&>(batch);
  RETURN_IF_ERROR(Finish(changes));
  const Blocking blocking;
  absl::MutexLock unlogged_lock(&unlogged_mutex_);
  snapshot_bytes_ += changes.bytes();
  // The column families are flushed one by one, so only the WAL makes a batch atomic that changes
  // both.
  const bool logged = log_rest_ || copies_ > 0 || changes.changes_cold() ||
                      (snapshot_bytes_ <= logged_snapshot_bytes_ && !after_large_);
  if (!logged) {
    absl::MutexLock set_lock(&unlogged_set_mutex_);
    if (unlogged_.empty()) logged_through_ = db_->GetLatestSequenceNumber();
    unlogged_.insert(changes.id());
  } else if (IsUnlogged(changes.id())) {
    RETURN_IF_ERROR(FlushUnlogged());
  }
  return WriteFinished(changes, logged);
}

bool RocksStore::IsUnlogged(const StripeId& id) const {
  absl::MutexLock lock(&unlogged_set_mutex_);
  return unlogged_.contains(id);
}

absl::Status RocksStore::FlushUnlogged() {
  {
    absl::MutexLock lock(&unlogged_set_mutex_);
    if (unlogged_.empty()) return absl::OkStatus();
  }
  CAIRN_CRASH_POINT("snapshot: before its stripes are flushed");
  rocksdb::FlushOptions options;
  options.allow_write_stall = true;  // otherwise waits, without limit, for compactions
  // Unlogged batches change the default column family only.
  RETURN_IF_ERROR(
      failure_.Set(FromRocks(db_->Flush(options), Context("write stripes as a table"))));
  {
    absl::MutexLock lock(&unlogged_set_mutex_);
    unlogged_.clear();
  }
  CAIRN_CRASH_POINT("snapshot: its stripes are flushed");
  return absl::OkStatus();
}

absl::Status RocksStore::SettleSnapshot() {
  absl::ReaderMutexLock lock(&life_);
  RETURN_IF_ERROR(CheckUsable());
  const Blocking blocking;
  absl::MutexLock unlogged_lock(&unlogged_mutex_);
  RETURN_IF_ERROR(FlushUnlogged());
  after_large_ = snapshot_bytes_ / kLargeSnapshot > logged_snapshot_bytes_;
  snapshot_bytes_ = 0;
  log_rest_ = false;
  return absl::OkStatus();
}

absl::Status RocksStore::FillEpoch(absl::Span<const ShardRecord> shards,
                                   absl::Span<const WorkerRecord> workers,
                                   rocksdb::WriteBatch& batch) const {
  rocksdb::Status put;
  for (const ShardRecord& shard : shards) {
    const std::string key = ShardKey(shard.variable, shard.shard);
    if (put.ok()) put = batch.Put(key, EncodeShard(key, shard));
  }
  for (const WorkerRecord& worker : workers) {
    if (worker.job.size() > kMaxJobBytes) {
      return InvalidArgument("a job's name has ", worker.job.size(), " bytes, allowed are ",
                             kMaxJobBytes);
    }
    const std::string key = WorkerKey(worker.job, worker.worker);
    if (put.ok()) put = batch.Put(key, EncodeWorker(key, worker));
  }
  return FromRocks(put, Context("fill a snapshot's batch"));
}

absl::Status RocksStore::WriteEpoch(absl::Span<const ShardRecord> shards,
                                    absl::Span<const WorkerRecord> workers,
                                    absl::Span<std::unique_ptr<StripeBatch>> stripes) {
  absl::ReaderMutexLock lock(&life_);
  rocksdb::WriteBatch batch;
  RETURN_IF_ERROR(FillEpoch(shards, workers, batch));
  for (std::unique_ptr<StripeBatch>& stripe : stripes) {
    auto& changes = static_cast<RocksStripeBatch&>(*stripe);  // NewBatch creates no other type
    RETURN_IF_ERROR(FromRocks(changes.AppendTo(batch), Context("fill a snapshot's batch")));
    stripe = nullptr;  // the images are in memory twice for as short as possible
  }
  spare_batches_.Drop();  // also those of moves that ended
  RETURN_IF_ERROR(Commit(batch, /*sync=*/false, "write a snapshot"));
  // Check before the snapshot is reported as durable.
  return failure_.Set(CheckInPlace(directory_, lock_.get()));
}

}  // namespace cairn
