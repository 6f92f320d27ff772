#include "storage/rocks_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {
namespace {

constexpr size_t kMaxPendingBytes = 256 << 10;  // opening a store logs about 20 KiB
constexpr size_t kMaxWarnings = 4;

std::string Format(const char* format, va_list arguments) {
  char line[2048];  // longer lines (a compaction's list of files) are cut
  va_list copy;
  va_copy(copy, arguments);
  std::vsnprintf(line, sizeof(line), format, copy);
  va_end(copy);
  return line;
}

}  // namespace

RocksLog::RocksLog(size_t max_file_bytes)
    : rocksdb::Logger(rocksdb::InfoLogLevel::INFO_LEVEL), max_file_bytes_(max_file_bytes) {}

void RocksLog::Attach(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  path_ = path;
  StartFile();
  Append(pending_);
  pending_.clear();
}

std::string RocksLog::Warnings() const {
  absl::MutexLock lock(&mutex_);
  return absl::StrJoin(warnings_, "; ");
}

void RocksLog::Logv(rocksdb::InfoLogLevel level, const char* format, va_list arguments) {
  if (level < GetInfoLogLevel()) return;
  if (level >= rocksdb::InfoLogLevel::WARN_LEVEL && level < rocksdb::InfoLogLevel::HEADER_LEVEL) {
    std::string line = Format(format, arguments);
    if (!absl::StrContains(line, "DB::Open() failed")) {
      // "[db/db_impl/db_impl_open.cc:898] text": the position in RocksDB's source does not help
      // users.
      const size_t end = absl::StartsWith(line, "[") ? line.find("] ") : std::string::npos;
      if (end != std::string::npos) line.erase(0, end + 2);
      absl::MutexLock lock(&mutex_);
      if (warnings_.size() == kMaxWarnings) warnings_.erase(warnings_.begin());
      warnings_.push_back(std::move(line));
    }
  }
  Logv(format, arguments);
}

void RocksLog::Logv(const char* format, va_list arguments) {
  const std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ ", absl::Now(), absl::UTCTimeZone()),
                   Format(format, arguments), "\n");
  absl::MutexLock lock(&mutex_);
  if (!path_.empty()) {
    Append(line);
  } else if (pending_.size() + line.size() <= kMaxPendingBytes) {
    pending_ += line;
  }
}

void RocksLog::Append(absl::string_view line) {
  if (file_bytes_ + line.size() > max_file_bytes_ && file_bytes_ > 0) StartFile();
  if (fd_.get() < 0) return;
  const ssize_t written = write(fd_.get(), line.data(), line.size());
  if (written > 0) file_bytes_ += static_cast<size_t>(written);
}

void RocksLog::StartFile() {
  fd_.Reset();
  std::rename(path_.c_str(), (path_ + ".old").c_str());  // fails if there is none yet
  fd_.Reset(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  file_bytes_ = 0;
}

}  // namespace cairn
