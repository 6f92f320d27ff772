#include "ps_server/base/server_info.h"

#include <algorithm>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

// The boot count orders the starts of a directory; the random bits tell directories apart.
int64_t MakeBootId(int64_t boot_count) {
  constexpr int kRandomBits = 32;
  std::random_device random;
  const int64_t count = boot_count & std::numeric_limits<int32_t>::max();
  return count << kRandomBits | static_cast<int64_t>(random() & 0xffffffffu);
}

}  // namespace

ServerInfo::ServerInfo(const EngineOptions& engine_options, int64_t boot_count)
    : options(engine_options),
      name(absl::StrCat("ps:", options.server_index)),
      boot_id(MakeBootId(boot_count)),
      started(MonotonicNow()) {}

int32_t ServerInfo::max_servers() const { return std::max(options.server_count, kMaxServers); }

absl::Duration ServerInfo::uptime() const { return MonotonicNow() - started; }

}  // namespace cairn
