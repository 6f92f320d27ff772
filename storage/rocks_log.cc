#include "storage/rocks_log.h"

#include <cstdarg>
#include <cstdio>

namespace cairn {

void RememberingLog::Logv(const char* format, va_list arguments) { file_->Logv(format, arguments); }

void RememberingLog::Logv(rocksdb::InfoLogLevel level, const char* format, va_list arguments) {
  if (level >= rocksdb::InfoLogLevel::WARN_LEVEL && level < rocksdb::InfoLogLevel::HEADER_LEVEL) {
    char line[512];  // enough for a path and a reason; longer lines are cut
    va_list copy;
    va_copy(copy, arguments);
    std::vsnprintf(line, sizeof(line), format, copy);
    va_end(copy);
    absl::MutexLock lock(&mutex_);
    last_warning_ = line;
  }
  file_->Logv(level, format, arguments);
}

void RememberingLog::LogHeader(const char* format, va_list arguments) {
  file_->LogHeader(format, arguments);
}

std::string RememberingLog::last_warning() const {
  absl::MutexLock lock(&mutex_);
  return last_warning_;
}

}  // namespace cairn
