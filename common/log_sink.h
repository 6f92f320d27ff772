// Where the library's own messages go. By default nowhere: a program that wants them says so.
#pragma once

#include <functional>

#include "absl/strings/string_view.h"

namespace cairn {

enum class LogLevel { kInfo, kWarning, kError };

// "INFO", "WARNING", "ERROR".
absl::string_view LogLevelName(LogLevel level);

// One message, without a line end. The texts are valid during the call.
struct LogEntry {
  LogLevel level = LogLevel::kInfo;
  absl::string_view file = {};  // of the library's source
  int line = 0;
  absl::string_view message = {};
};

// Called from any thread, one call at a time. It must not call the library.
using LogSink = std::function<void(const LogEntry& entry)>;

// From now on every message of the set level or above goes to `sink`; null: none does, which is the
// default. Returns once no call of the sink before runs any more. From any thread but the sink's.
void SetLogSink(LogSink sink);
// The default is kInfo. From any thread.
void SetLogLevel(LogLevel level);

// Writes lines to stderr: "WARNING server_session.cc:120: message".
LogSink StderrLogSink();

}  // namespace cairn
