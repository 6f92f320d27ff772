#include "common/log.h"

#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"

namespace cairn {
namespace {

enum class Target { kNone, kSink, kGlog };
std::atomic<Target> target = Target::kNone;
std::atomic<LogLevel> lowest = LogLevel::kInfo;

struct Sink {
  absl::Mutex mutex;
  LogSink call ABSL_GUARDED_BY(mutex);
};
// Never destroyed: threads may log while the process ends.
Sink& TheSink() {
  static Sink* const sink = new Sink();
  return *sink;
}

bool IsOn(LogLevel level) {
  const Target now = target;
  return now == Target::kGlog || (now == Target::kSink && level >= lowest);
}

// The file name of a path: "log.cc" for "../common/log.cc".
const char* BaseName(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

int GlogSeverity(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo: return google::GLOG_INFO;
    case LogLevel::kWarning: return google::GLOG_WARNING;
    case LogLevel::kError: return google::GLOG_ERROR;
  }
  return google::GLOG_ERROR;
}

}  // namespace

absl::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo: return "INFO";
    case LogLevel::kWarning: return "WARNING";
    case LogLevel::kError: return "ERROR";
  }
  return "unknown";
}

void SetLogSink(LogSink sink) {
  absl::MutexLock lock(&TheSink().mutex);
  target = sink == nullptr ? Target::kNone : Target::kSink;
  std::swap(TheSink().call, sink);
}

void SetLogLevel(LogLevel level) { lowest = level; }

LogSink StderrLogSink() {
  return [](const LogEntry& entry) {
    const std::string line = absl::StrCat(LogLevelName(entry.level), " ", entry.file, ":",
                                          entry.line, ": ", entry.message, "\n");
    std::fwrite(line.data(), 1, line.size(), stderr);
  };
}

void LogToGlog() { target = Target::kGlog; }

LogLine::LogLine(const char* file, int line, LogLevel level)
    : file_(file), line_(line), level_(level) {
  // Skip formatting of messages that are discarded.
  if (!IsOn(level)) stream_.setstate(std::ios::badbit);
}

LogLine::~LogLine() {
  if (!IsOn(level_) || stream_.bad()) return;
  try {
    Deliver();
  } catch (const std::bad_alloc&) {
    // A message that finds no memory is lost; the program continues.
  }
}

void LogLine::Deliver() const {
  const std::string message = stream_.str();
  if (target == Target::kGlog) {
    google::LogMessage(file_, line_, GlogSeverity(level_)).stream() << message;
    return;
  }
  absl::MutexLock lock(&TheSink().mutex);
  if (TheSink().call == nullptr) return;
  TheSink().call({.level = level_, .file = BaseName(file_), .line = line_, .message = message});
}

bool LogIsDue(std::atomic<int64_t>* last_ns, absl::Duration period) {
  const int64_t now = absl::ToInt64Nanoseconds(MonotonicNow());
  int64_t last = *last_ns;
  const bool due = last == INT64_MIN || now - last >= absl::ToInt64Nanoseconds(period);
  return due && last_ns->compare_exchange_strong(last, now);
}

}  // namespace cairn
