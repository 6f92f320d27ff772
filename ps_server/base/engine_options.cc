#include "ps_server/base/engine_options.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/nearest.h"

namespace cairn {
namespace {

constexpr std::array<absl::string_view, 4> kDurabilityNames = {"off", "snapshot", "log",
                                                               "log_sync"};

}  // namespace

absl::string_view DurabilityName(Durability durability) {
  return kDurabilityNames[static_cast<size_t>(durability)];
}

absl::StatusOr<Durability> DurabilityFromName(absl::string_view name) {
  for (size_t i = 0; i < kDurabilityNames.size(); ++i) {
    if (name == kDurabilityNames[i]) return static_cast<Durability>(i);
  }
  return InvalidArgument("durability '", name, "' is unknown", DidYouMean(name, kDurabilityNames),
                         "; it is one of ", absl::StrJoin(kDurabilityNames, ", "));
}

StoreMemory StoreMemoryOf(int64_t memory_budget_bytes) {
  constexpr int64_t kMiB = 1 << 20;
  const int64_t cache = std::clamp(memory_budget_bytes / 64, kMiB, 32 * kMiB);
  const int64_t buffer = std::clamp(memory_budget_bytes / 32, kMiB, 64 * kMiB);
  // RocksDB fills one write buffer while it writes out another.
  return {.block_cache_bytes = static_cast<size_t>(cache),
          .write_buffer_bytes = static_cast<size_t>(buffer),
          .total_bytes = cache + 2 * buffer};
}

}  // namespace cairn
