// The column family of cold rows: single rows, looked up by key, which loading skips.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/blocking.h"
#include "common/status.h"
#include "storage/directory.h"
#include "storage/key.h"
#include "storage/record.h"
#include "storage/rocks_options.h"
#include "storage/rocks_status.h"
#include "storage/rocks_store.h"

namespace cairn {
namespace {

constexpr char kColdFamily[] = "cold";
// Keys of one lookup on one thread; RocksDB processes 32 at a time.
constexpr size_t kLookups = 128;

}  // namespace

rocksdb::Status RocksStore::OpenFamilies(const rocksdb::Options& options, const std::string& path) {
  std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, options},
      {kColdFamily, MakeColdOptions(options, /*lookups=*/!read_only_)}};
  rocksdb::DBOptions db_options(options);
  db_options.create_missing_column_families = true;
  rocksdb::DB* db = nullptr;
  rocksdb::Status opened;
  if (!read_only_) {
    opened = rocksdb::DB::Open(db_options, path, families, &families_, &db);
  } else {
    std::vector<std::string> names;
    opened = rocksdb::DB::ListColumnFamilies(db_options, path, &names);
    if (!opened.ok()) return opened;
    if (std::ranges::count(names, kColdFamily) == 0) families.pop_back();
    opened = rocksdb::DB::OpenForReadOnly(db_options, path, families, &families_, &db);
  }
  db_.reset(db);
  if (opened.ok() && families_.size() > 1) cold_ = families_[1];
  return opened;
}

void RocksStore::CloseFamilies() {
  for (rocksdb::ColumnFamilyHandle* const family : families_) {
    db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  families_.clear();
  cold_ = nullptr;
}

absl::Status RocksStore::ReadCold(absl::Span<const ColdKey> keys, size_t row_bytes,
                                  ColdRows& rows) const {
  absl::ReaderMutexLock lock(&life_);
  if (db_ == nullptr) return absl::FailedPreconditionError(Context("the store is closed"));
  rows.Reset(keys.size(), row_bytes);
  if (cold_ == nullptr) return absl::OkStatus();
  const Blocking blocking;
  const size_t pieces = (keys.size() + kLookups - 1) / kLookups;
  std::vector<absl::Status> statuses(pieces);
  readers_.Run(pieces, [&](size_t piece) {
    const size_t first = piece * kLookups;
    statuses[piece] = ReadPiece(keys.subspan(first, kLookups), first, row_bytes, rows);
  });
  for (absl::Status& status : statuses) RETURN_IF_ERROR(std::move(status));
  return absl::OkStatus();
}

absl::Status RocksStore::CheckColdRow(absl::string_view key, absl::string_view row,
                                      size_t row_bytes) const {
  if (row.size() == row_bytes) return absl::OkStatus();
  return absl::DataLossError(
      Context(absl::StrCat(KeyText(key), " has ", row.size(), " bytes, not ", row_bytes)));
}

// The caller holds life_.
absl::Status RocksStore::ReadPiece(absl::Span<const ColdKey> keys, size_t first, size_t row_bytes,
                                   ColdRows& rows) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
  std::array<rocksdb::Slice, kLookups> slices;
  std::array<rocksdb::PinnableSlice, kLookups> values;
  std::array<rocksdb::Status, kLookups> statuses;
  std::vector<StripeKeys> records;
  records.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    records.emplace_back(keys[i].id);
    slices[i] = ToSlice(records[i].Cold(keys[i].key));
  }
  db_->MultiGet(rocksdb::ReadOptions(), cold_, keys.size(), slices.data(), values.data(),
                statuses.data(), /*sorted_input=*/true);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (statuses[i].IsNotFound()) continue;
    RETURN_IF_ERROR(FromRocks(statuses[i], Context("read a cold row")));
    ASSIGN_OR_RETURN(const absl::string_view row,
                     VerifyChecksum(FromSlice(slices[i]), FromSlice(values[i])));
    RETURN_IF_ERROR(CheckColdRow(FromSlice(slices[i]), row, row_bytes));
    rows.Set(first + i, row);
  }
  return absl::OkStatus();
}

absl::Status RocksStore::ScanCold(
    const StripeId& id, int64_t first, size_t row_bytes,
    absl::FunctionRef<bool(int64_t key, absl::string_view row)> visit) const {
  absl::ReaderMutexLock lock(&life_);
  if (db_ == nullptr) return absl::FailedPreconditionError(Context("the store is closed"));
  if (cold_ == nullptr) return absl::OkStatus();
  const Blocking blocking;
  StripeKeys keys(id);
  const std::string end = PrefixEnd(keys.ColdPrefix());
  const rocksdb::Slice end_slice = ToSlice(end);
  rocksdb::ReadOptions options = MakeScanOptions();
  options.iterate_upper_bound = &end_slice;
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options, cold_));
  for (at->Seek(ToSlice(keys.Cold(first))); at->Valid(); at->Next()) {
    const absl::string_view key = FromSlice(at->key());
    ASSIGN_OR_RETURN(const StripeKey parsed, ParseStripeKey(key));
    ASSIGN_OR_RETURN(const absl::string_view row, VerifyChecksum(key, FromSlice(at->value())));
    RETURN_IF_ERROR(CheckColdRow(key, row, row_bytes));
    if (!visit(parsed.key, row)) return absl::OkStatus();
  }
  return FromRocks(at->status(), Context("scan cold rows"));
}

int64_t RocksStore::ColdLookupBytes() const {
  absl::ReaderMutexLock lock(&life_);
  uint64_t bytes = 0;
  if (db_ == nullptr || cold_ == nullptr ||
      !db_->GetIntProperty(cold_, rocksdb::DB::Properties::kEstimateTableReadersMem, &bytes)) {
    return 0;
  }
  return static_cast<int64_t>(bytes);
}

absl::Status RocksStore::SetUnfinished(bool unfinished) {
  return unfinished ? MarkUnfinished(directory_) : ClearUnfinished(directory_);
}

}  // namespace cairn
