#include "ps_server/persistence/untracked_memory.h"

#include <algorithm>

namespace cairn {
namespace {

// Left for rows and calls, however much the process uses: a call that loads many rows must find
// memory. In a small budget, the rest may still use a quarter.
constexpr int64_t kKeptShare = 8;
constexpr int64_t kKeptBytes = 40 << 20;
// The charge falls by this share of the budget per second.
constexpr int64_t kFallShare = 128;
// The rest soon grows to this size, whatever the budget; but at most to a quarter of the budget.
constexpr int64_t kUsualBytes = 48 << 20;
constexpr int64_t kUsualShare = 4;
// Rows leave this share of the budget to calls; the rest may use what calls do not.
constexpr int64_t kCallsShare = 20;

}  // namespace

int64_t UntrackedMemory::usual_bytes() const { return std::min(kUsualBytes, limit_ / kUsualShare); }

int64_t UntrackedMemory::Note(const Seen& seen) {
  const int64_t unused =
      std::clamp<int64_t>(limit_ - seen.charged_bytes - charged_, 0, limit_ / kCallsShare);
  const int64_t rest = seen.resident_bytes - seen.idle_bytes - seen.charged_bytes - unused;
  const double fall = static_cast<double>(limit_) / kFallShare *
                      absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), seen.at - noted_));
  held_ = std::max({rest, held_ - static_cast<int64_t>(std::min(fall, 1e18)), usual_bytes()});
  noted_ = seen.at;
  if (seen.resident_bytes <= limit_ / 2) held_ = 0;
  const int64_t others = seen.charged_bytes - seen.rows_bytes;
  const int64_t kept = std::max(limit_ / kKeptShare, kKeptBytes);
  charged_ = std::min(held_, std::max(limit_ / kUsualShare, limit_ - kept - others));
  return charged_;
}

int64_t UntrackedMemory::expected_bytes() const {
  return std::max<int64_t>(0, usual_bytes() - charged_);
}

}  // namespace cairn
