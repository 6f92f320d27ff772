// Copies a store, and reads the copies.
#include <memory>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/crash_point.h"
#include "common/regular_file.h"
#include "common/status.h"
#include "rocksdb/utilities/checkpoint.h"
#include "storage/directory.h"
#include "storage/rocks_options.h"
#include "storage/rocks_status.h"
#include "storage/rocks_store.h"

namespace cairn {
namespace {

constexpr size_t kReaderLogBytes = 1 << 20;

// RocksDB would wait forever for a FIFO's writer. Files may disappear in the meantime if a server
// uses the folder.
absl::Status CheckRegularFiles(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path));
  for (const std::string& name : names) {
    const absl::Status status = OpenRegularFile(absl::StrCat(path, "/", name)).status();
    if (absl::IsFailedPrecondition(status)) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RocksStore::Checkpoint(const std::string& folder) {
  absl::ReaderMutexLock lock(&life_);
  RETURN_IF_ERROR(CheckUsable());
  const std::string what = Context(absl::StrCat("copy to ", folder));
  RETURN_IF_ERROR(MakeFolder(
      folder, CheckpointFolderMode(absl::string_view(folder).substr(0, folder.rfind('/')))));
  CAIRN_CRASH_POINT("checkpoint: before the files are linked");
  {
    absl::MutexLock unlogged_lock(&unlogged_mutex_);
    ++copies_;
  }
  const absl::Cleanup copied = [this] {
    absl::MutexLock unlogged_lock(&unlogged_mutex_);
    --copies_;
  };
  rocksdb::Checkpoint* made = nullptr;
  RETURN_IF_ERROR(FromRocks(rocksdb::Checkpoint::Create(db_.get(), &made), what));
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  // 0: flushes the memtable first, so that almost nothing of the WAL is copied and the copy opens
  // quickly.
  RETURN_IF_ERROR(FromRocks(
      checkpoint->CreateCheckpoint(DatabasePath(folder), /*log_size_for_flush=*/0), what));
  RETURN_IF_ERROR(Annotate(WriteMarker(folder, meta_.server_index), what));
  return Annotate(SyncFolder(folder), what);
}

absl::Status RocksStore::OpenDatabaseReadOnly(const StoreOptions& options) {
  const std::string path = DatabasePath(directory_);
  RETURN_IF_ERROR(CheckRegularFiles(path));
  log_ = std::make_shared<RocksLog>(kReaderLogBytes);
  rocksdb::Options rocks = MakeRocksOptions(options);
  rocks.info_log = log_;
  absl::MutexLock lock(&life_);
  const rocksdb::Status opened = OpenFamilies(rocks, path);
  return opened.ok() ? absl::OkStatus() : OpenError(opened, path);
}

absl::StatusOr<std::unique_ptr<StripeStore>> RocksStore::OpenReadOnly(const StoreOptions& options) {
  const std::string context = absl::StrCat("read store ", options.directory);
  RETURN_IF_ERROR(Annotate(CheckFinished(options.directory, options.server_index), context));
  std::unique_ptr<RocksStore> store(new RocksStore(options, /*read_only=*/true));
  RETURN_IF_ERROR(Annotate(store->OpenDatabaseReadOnly(options), context));
  absl::ReaderMutexLock lock(&store->life_);
  RETURN_IF_ERROR(Annotate(store->ReadMeta(options, /*create=*/false), context));
  return store;
}

absl::StatusOr<std::unique_ptr<StripeStore>> StripeStore::OpenReadOnly(
    const StoreOptions& options) {
  return RocksStore::OpenReadOnly(options);
}

}  // namespace cairn
