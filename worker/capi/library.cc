// The C interface: the library as a whole.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "common/log_sink.h"
#include "common/status.h"
#include "common/version.h"
#include "worker/capi/c.h"
#include "worker/capi/call.h"

namespace {

constexpr int kAbiVersion = 1;

}  // namespace

extern "C" {

const char* cairn_version(void) {
  static const auto* const kNumber = new std::string(cairn::ProgramVersion().number);
  return kNumber->c_str();
}

int cairn_abi_version(void) { return kAbiVersion; }

const char* cairn_code_name(int code) {
  const auto name = cairn::CodeName(static_cast<absl::StatusCode>(code));
  return name.data();  // of a literal
}

void cairn_free_text(char* text) { std::free(text); }

void cairn_set_log(cairn_log_function function, void* context, int lowest) {
  if (function == nullptr) return cairn::SetLogSink(nullptr);
  const int level = std::clamp<int>(lowest, CAIRN_LOG_INFO, CAIRN_LOG_ERROR);
  cairn::SetLogLevel(static_cast<cairn::LogLevel>(level));
  cairn::SetLogSink([function, context](const cairn::LogEntry& entry) {
    const std::string file(entry.file), message = cairn::capi::InTermsOfCalls(entry.message);
    function(context, static_cast<int>(entry.level), file.c_str(), entry.line, message.c_str());
  });
}

}  // extern "C"
