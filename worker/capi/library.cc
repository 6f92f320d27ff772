// The C interface: the library as a whole.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "common/log_sink.h"
#include "common/status.h"
#include "common/version.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"

namespace cairn::capi {

extern "C" {

const char* cairn_version(void) {
  static const auto* const kNumber = new std::string(ProgramVersion().number);
  return kNumber->c_str();
}

int cairn_abi_version(void) { return 1; }

const char* cairn_code_name(int code) {
  const auto name = CodeName(static_cast<absl::StatusCode>(code));
  return name.data();  // of a literal
}

void cairn_free_text(char* text) { std::free(text); }

void cairn_set_log(cairn_log_function function, void* context, int lowest) {
  if (function == nullptr) return SetLogSink(nullptr);
  const int level = std::clamp<int>(lowest, CAIRN_LOG_INFO, CAIRN_LOG_ERROR);
  SetLogLevel(static_cast<LogLevel>(level));
  SetLogSink([function, context](const LogEntry& entry) {
    const std::string file(entry.file), message = InTermsOfCalls(entry.message);
    function(context, static_cast<int>(entry.level), file.c_str(), entry.line, message.c_str());
  });
}

}  // extern "C"

}  // namespace cairn::capi
