// Where the library's messages go. By default they are discarded; a program that wants them sets a
// sink.
#pragma once

#include <functional>

#include "absl/strings/string_view.h"

namespace cairn {

enum class LogLevel { kInfo, kWarning, kError };

// "INFO", "WARNING", "ERROR".
absl::string_view LogLevelName(LogLevel level);

// One message, without a line end. The texts are valid only during the call.
struct LogEntry {
  LogLevel level = LogLevel::kInfo;
  absl::string_view file = {};  // the library's source file
  int line = 0;
  absl::string_view message = {};
};

// Called from any thread, one call at a time. It must not call the library.
using LogSink = std::function<void(const LogEntry& entry)>;

// Sends every further message of the set level or above to `sink`; null, the default, discards
// them. Returns when no call of the previous sink is running. May be called from any thread that is
// not inside the sink.
void SetLogSink(LogSink sink);
// The default is kInfo. May be called from any thread.
void SetLogLevel(LogLevel level);

// Writes lines to stderr: "WARNING server_session.cc:120: message".
LogSink StderrLogSink();

}  // namespace cairn
