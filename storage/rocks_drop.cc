// Removes jobs, stripes that have moved to another server, and remains of an interrupted restore.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "rocksdb/write_batch.h"
#include "storage/key.h"
#include "storage/record.h"
#include "storage/rocks_status.h"
#include "storage/rocks_store.h"

namespace cairn {

rocksdb::Status RocksStore::DropCold(rocksdb::WriteBatch& batch, uint32_t first,
                                     uint32_t end) const {
  return batch.DeleteRange(cold_, StripesPrefix(first), StripesPrefix(end));
}

absl::Status RocksStore::DropJob(absl::string_view job) {
  absl::ReaderMutexLock lock(&life_);
  RETURN_IF_ERROR(CheckUsable());
  ASSIGN_OR_RETURN(const std::vector<VariableRecord> variables, ListVariables());
  // Allocates everything before the commit: if it throws, nothing is dropped.
  std::vector<uint32_t> dropped;
  dropped.reserve(variables.size());
  rocksdb::WriteBatch batch;
  rocksdb::Status put;
  const auto drop = [&](const std::string& prefix) {
    if (put.ok()) put = batch.DeleteRange(prefix, PrefixEnd(prefix));
  };
  for (const VariableRecord& variable : variables) {
    if (variable.job != job) continue;
    dropped.push_back(variable.id);  // ascending
    if (put.ok()) put = batch.Delete(VariableKey(variable.id));
    drop(ShardsPrefix(variable.id));
    drop(StripesPrefix(variable.id));
    if (put.ok()) put = DropCold(batch, variable.id, variable.id + 1);
  }
  if (job.size() <= kMaxJobBytes) {
    drop(WorkersPrefix(job));
    drop(DecisionsPrefix(job));
  }
  RETURN_IF_ERROR(FromRocks(put, Context("drop a job")));
  RETURN_IF_ERROR(Commit(batch, /*sync=*/true, absl::StrCat("drop job \"", job, "\"")));
  absl::MutexLock segments_lock(&segments_mutex_);
  std::erase_if(segments_, [&](const auto& entry) {
    return std::binary_search(dropped.begin(), dropped.end(), entry.first.variable);
  });
  return absl::OkStatus();
}

absl::Status RocksStore::PutMap(const VariableRecord& record, absl::Span<const ShardRecord> shards,
                                absl::Span<const StripeId> removed) {
  absl::ReaderMutexLock lock(&life_);
  rocksdb::WriteBatch batch;
  RETURN_IF_ERROR(FillEpoch(shards, {}, batch));
  const std::string key = VariableKey(record.id);
  RETURN_IF_ERROR(FromRocks(batch.Put(key, EncodeVariable(key, record)), Context("variable")));
  for (const StripeId& id : removed) {
    StripeKeys first(id);
    StripeId after = id;
    ++after.stripe;
    StripeKeys end(after);
    rocksdb::Status dropped = batch.DeleteRange(ToSlice(first.Header()), ToSlice(end.Header()));
    if (dropped.ok()) {
      dropped = batch.DeleteRange(cold_, ToSlice(first.Header()), ToSlice(end.Header()));
    }
    RETURN_IF_ERROR(FromRocks(dropped, Context("drop stripes")));
  }
  RETURN_IF_ERROR(Commit(batch, /*sync=*/true, "write a map"));
  absl::MutexLock segments_lock(&segments_mutex_);
  for (const StripeId& id : removed) segments_.erase(id);
  return absl::OkStatus();
}

absl::StatusOr<bool> RocksStore::HasAny(absl::string_view first, absl::string_view end,
                                        rocksdb::ColumnFamilyHandle* family) const {
  const rocksdb::Slice end_slice = ToSlice(end);
  rocksdb::ReadOptions options;
  options.iterate_upper_bound = &end_slice;
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options, family));
  at->Seek(ToSlice(first));
  RETURN_IF_ERROR(FromRocks(at->status(), Context("look for leftovers")));
  return at->Valid();
}

absl::Status RocksStore::DropLeftovers(uint32_t first, uint32_t end) {
  absl::ReaderMutexLock lock(&life_);
  RETURN_IF_ERROR(CheckUsable());
  const std::pair<std::string, std::string> ranges[] = {{ShardsPrefix(first), ShardsPrefix(end)},
                                                        {StripesPrefix(first), StripesPrefix(end)}};
  rocksdb::WriteBatch batch;
  for (const auto& [from, to] : ranges) {
    ASSIGN_OR_RETURN(const bool any, HasAny(from, to, db_->DefaultColumnFamily()));
    if (any) RETURN_IF_ERROR(FromRocks(batch.DeleteRange(from, to), Context("drop leftovers")));
  }
  ASSIGN_OR_RETURN(const bool any_cold, HasAny(StripesPrefix(first), StripesPrefix(end), cold_));
  if (any_cold) {
    RETURN_IF_ERROR(FromRocks(DropCold(batch, first, end), Context("drop leftovers")));
  }
  if (batch.Count() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Commit(batch, /*sync=*/true, "drop leftovers"));
  absl::MutexLock segments_lock(&segments_mutex_);
  std::erase_if(segments_, [&](const auto& entry) {
    return entry.first.variable >= first && entry.first.variable < end;
  });
  return absl::OkStatus();
}

}  // namespace cairn
