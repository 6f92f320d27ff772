// RocksDB's options, each with its reason. Internal to storage/: it names RocksDB.
#pragma once

#include <cstdint>
#include <string>

#include "rocksdb/options.h"
#include "storage/stripe_store.h"

namespace cairn {

// So many full write buffers are yet to become tables where the store is behind; when one more is
// full writes have to wait.
inline constexpr uint64_t kBehindWriteBuffers = 2;

// Everything but `info_log` and `listeners`, which belong to one open store.
rocksdb::Options MakeRocksOptions(const StoreOptions& options);

// Of the column family of cold rows, in a database with the options `main`. `lookups`: rows are
// looked up, and not scanned alone.
rocksdb::ColumnFamilyOptions MakeColdOptions(const rocksdb::Options& main, bool lookups);

// Of a scan over a variable or a kind of record.
rocksdb::ReadOptions MakeScanOptions();

}  // namespace cairn
