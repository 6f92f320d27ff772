// RocksDB's options, each with its reason. Internal to storage/, because it includes RocksDB.
#pragma once

#include <cstdint>
#include <string>

#include "rocksdb/options.h"
#include "storage/stripe_store.h"

namespace cairn {

// The store is behind when this many full write buffers have not been written as tables. When one
// more is full, writes must wait.
inline constexpr uint64_t kBehindWriteBuffers = 2;
// Tables of one family that are compacted together. Each compaction rewrites the rows that it
// meets below, so a few large ones write less: in a job that keeps two servers busy, compactions
// wrote 0.7 to 1.1 bytes for each byte of the snapshots, and 0.15 to 0.35 with twelve tables.
inline constexpr int kCompactedTables = 12;
// The store is also behind when this many tables of one family wait for a compaction. From
// kDelayTables on, RocksDB delays every write: also the records of moves, during which updates
// are rejected. From kStopTables on, writes must wait.
inline constexpr int kBehindTables = 24;
inline constexpr int kDelayTables = 36;
inline constexpr int kStopTables = 44;

// All options except `info_log` and `listeners`, which belong to one open store.
rocksdb::Options MakeRocksOptions(const StoreOptions& options);

// Options of the column family of cold rows, in a database with the options `main`. `lookups`: rows
// are looked up, not only scanned.
rocksdb::ColumnFamilyOptions MakeColdOptions(const rocksdb::Options& main, bool lookups);

// Options of a scan over a variable or a kind of record.
rocksdb::ReadOptions MakeScanOptions();

}  // namespace cairn
