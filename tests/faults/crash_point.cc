// The effect of a crash point in the programs that are built with crash points.
#include "common/crash_point.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>

namespace cairn {
namespace {

struct CrashPlan {
  std::string name;  // empty: none
  int64_t passage = 1;
};

CrashPlan ReadCrashPlan() {
  const char* const text = std::getenv("CAIRN_CRASH_AT");
  if (text == nullptr) return {};
  const std::string wanted = text;
  const size_t colon = wanted.rfind(':');
  if (colon == std::string::npos) return {.name = wanted};
  return {.name = wanted.substr(0, colon), .passage = std::atoll(wanted.c_str() + colon + 1)};
}

}  // namespace

void AtCrashPoint(const char* name) {
  static const CrashPlan wanted = ReadCrashPlan();
  static std::atomic<int64_t> passages{0};
  if (wanted.name != name || ++passages != wanted.passage) return;
  const std::string line = "killed at crash point " + wanted.name + "\n";
  (void)!write(STDERR_FILENO, line.data(), line.size());
  raise(SIGKILL);
}

}  // namespace cairn
