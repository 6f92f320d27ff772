// LOG, LOG_IF and LOG_EVERY_T for all code of the library, in place of glog's. Messages go to the
// program's sink (log_sink.h) or, in Cairn's own programs, to glog. CHECK and LOG(FATAL), which end
// the process, are glog's.
#pragma once

#include <atomic>
#include <cstdint>
#include <sstream>
#include <string>

#include "absl/time/time.h"
#include "common/log_sink.h"
#include "glog/logging.h"

namespace cairn {

// Sends all further messages to glog instead of a sink. Called by the programs' main().
void LogToGlog();

// One message, delivered by the destructor.
class LogLine {
 public:
  LogLine(const char* file, int line, LogLevel level);
  ~LogLine();
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;

  std::ostream& stream() { return stream_; }

 private:
  void Deliver() const;

  const char* const file_;
  const int line_;
  const LogLevel level_;
  std::ostringstream stream_;
};

// Whether `period` has passed since the last call with this `last_ns` that returned true; true on
// the first call. Thread safe.
bool LogIsDue(std::atomic<int64_t>* last_ns, absl::Duration period);

}  // namespace cairn

#undef LOG
#undef LOG_EVERY_T
#define LOG(severity) CAIRN_LOG_##severity.stream()
#define CAIRN_LOG_INFO ::cairn::LogLine(__FILE__, __LINE__, ::cairn::LogLevel::kInfo)
#define CAIRN_LOG_WARNING ::cairn::LogLine(__FILE__, __LINE__, ::cairn::LogLevel::kWarning)
#define CAIRN_LOG_ERROR ::cairn::LogLine(__FILE__, __LINE__, ::cairn::LogLevel::kError)
#define CAIRN_LOG_FATAL ::google::LogMessageFatal(__FILE__, __LINE__)
// Logs at most one message every `seconds` from this place.
#define LOG_EVERY_T(severity, seconds)                                \
  if (static std::atomic<int64_t> cairn_last_ns = INT64_MIN;          \
      !::cairn::LogIsDue(&cairn_last_ns, ::absl::Seconds(seconds))) { \
  } else                                                              \
    LOG(severity)
