#include "common/log.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/deadline.h"

namespace cairn {
namespace {

enum class Target { kNone, kSink, kGlog };
std::atomic<Target> target = Target::kNone;
std::atomic<LogLevel> lowest = LogLevel::kInfo;

struct Sink {
  absl::Mutex mutex;  // held while the function is replaced, and while it runs
  // Owned; null: none. Atomic, because a forked child reads it while the parent's mutex may be
  // locked.
  std::atomic<LogSink*> call = nullptr;
};
// Never destroyed: threads may log while the process ends. Replaced in a forked child, where the
// parent's mutex may be locked forever.
std::atomic<Sink*> sink_of_process = nullptr;

void BeginChild() {
  auto* const sink = new Sink;
  sink->call = sink_of_process.load()->call.load();
  sink_of_process = sink;
}

Sink& TheSink() {
  static const bool once = [] {
    sink_of_process = new Sink;
    ::pthread_atfork(nullptr, nullptr, BeginChild);
    return true;
  }();
  (void)once;
  return *sink_of_process;
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
  std::unique_ptr<LogSink> call;  // the former one is destroyed after the lock is released
  if (sink != nullptr) call = std::make_unique<LogSink>(std::move(sink));
  Sink& shared = TheSink();
  absl::MutexLock lock(&shared.mutex);
  target = call == nullptr ? Target::kNone : Target::kSink;
  call.reset(shared.call.exchange(call.release()));
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
  Sink& sink = TheSink();
  absl::MutexLock lock(&sink.mutex);
  const LogSink* const call = sink.call;
  if (call == nullptr) return;
  (*call)({.level = level_, .file = BaseName(file_), .line = line_, .message = message});
}

bool LogIsDue(std::atomic<int64_t>* last_ns, absl::Duration period) {
  const int64_t now = absl::ToInt64Nanoseconds(MonotonicNow());
  int64_t last = *last_ns;
  const bool due = last == INT64_MIN || now - last >= absl::ToInt64Nanoseconds(period);
  return due && last_ns->compare_exchange_strong(last, now);
}

}  // namespace cairn
