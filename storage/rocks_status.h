// Converts rocksdb::Status to absl::Status. Internal to storage/, because it includes RocksDB.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rocksdb/slice.h"
#include "rocksdb/status.h"

namespace cairn {

// OK stays OK. Otherwise `what` ("store DIR: write stripe 3/0/7"), RocksDB's text, and the next
// step. kResourceExhausted: disk full, quota, file size limit, memory limit. kPermissionDenied.
// kDataLoss: corruption. kNotFound. kFailedPrecondition: closed, or written by another RocksDB.
// kUnavailable: other I/O errors. kInternal: unexpected errors.
absl::Status FromRocks(const rocksdb::Status& status, absl::string_view what);

inline rocksdb::Slice ToSlice(absl::string_view bytes) { return {bytes.data(), bytes.size()}; }
inline absl::string_view FromSlice(const rocksdb::Slice& bytes) {
  return {bytes.data(), bytes.size()};
}

}  // namespace cairn
