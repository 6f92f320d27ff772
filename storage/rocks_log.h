// RocksDB's info log, which is told more than its Status says. Internal to storage/: names RocksDB.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rocksdb/env.h"

namespace cairn {

// Writes through to `file` and keeps the last warning: recovery reports a damaged WAL as "checksum
// mismatch", and which file it was only here. Thread safety: any thread may call any method.
class RememberingLog : public rocksdb::Logger {
 public:
  explicit RememberingLog(std::shared_ptr<rocksdb::Logger> file)
      : rocksdb::Logger(file->GetInfoLogLevel()), file_(std::move(file)) {}

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override;
  void Logv(rocksdb::InfoLogLevel level, const char* format, va_list arguments) override;
  void LogHeader(const char* format, va_list arguments) override;
  void Flush() override { file_->Flush(); }
  size_t GetLogFileSize() const override { return file_->GetLogFileSize(); }

  // The last line at level warning or above; empty if there was none.
  std::string last_warning() const;

 protected:
  rocksdb::Status CloseImpl() override { return file_->Close(); }

 private:
  const std::shared_ptr<rocksdb::Logger> file_;
  mutable absl::Mutex mutex_;
  std::string last_warning_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
