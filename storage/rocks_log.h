// RocksDB's info log. Internal to storage/, because it includes RocksDB.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/descriptor.h"
#include "rocksdb/env.h"

namespace cairn {

// Keeps lines in memory until Attach names a file, so that a folder that cannot be opened is not
// written to. Then writes them to that file, of bounded size. A line that cannot be written is
// dropped; RocksDB's own log file ends the process (an assertion) at the first line after a full
// disk. Thread safety: any thread may call any method.
class RocksLog : public rocksdb::Logger {
 public:
  // `path` holds at most `max_file_bytes`; the lines before them are in `path`.old, and earlier
  // lines are dropped.
  explicit RocksLog(size_t max_file_bytes);

  void Attach(const std::string& path);

  // The last few warnings, joined by "; ". Leaves out warnings that only repeat the status of a
  // call. Recovery reports a corrupt WAL as "checksum mismatch"; only the warnings name the file.
  std::string Warnings() const;

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override;
  void Logv(rocksdb::InfoLogLevel level, const char* format, va_list arguments) override;

 private:
  void Append(absl::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartFile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_file_bytes_;
  mutable absl::Mutex mutex_;
  std::string path_ ABSL_GUARDED_BY(mutex_);     // empty: not attached
  std::string pending_ ABSL_GUARDED_BY(mutex_);  // before Attach
  std::vector<std::string> warnings_ ABSL_GUARDED_BY(mutex_);
  Descriptor fd_ ABSL_GUARDED_BY(mutex_);
  size_t file_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
