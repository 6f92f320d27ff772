#include "common/timeline.h"

#include <algorithm>

#include "absl/time/civil_time.h"
#include "common/start_number.h"

namespace cairn {
namespace {

constexpr int kSecondShift = 32;
constexpr int kRandomShift = 16;
constexpr int64_t kServersMask = 0xffff;
constexpr int64_t kRandomMask = 0xffff;

absl::Time Epoch() { return absl::FromCivil(absl::CivilDay(2020, 1, 1), absl::UTCTimeZone()); }

}  // namespace

int64_t NewTimeline(int32_t servers, int64_t after, absl::Time now) {
  const int64_t second =
      std::max<int64_t>({absl::ToInt64Seconds(now - Epoch()), (after >> kSecondShift) + 1, 1});
  const int64_t random = (DrawStartNumber() >> 1) & kRandomMask;
  return WithServers(second << kSecondShift | random << kRandomShift, servers);
}

int32_t ServersOfTimeline(int64_t timeline) {
  return static_cast<int32_t>(timeline & kServersMask);
}

int64_t WithServers(int64_t timeline, int32_t servers) {
  return (timeline & ~kServersMask) | (servers & kServersMask);
}

std::string TimelineText(int64_t timeline) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", Epoch() + absl::Seconds(timeline >> kSecondShift),
                          absl::UTCTimeZone());
}

int64_t FirstIncarnation(int64_t timeline) { return timeline >> kSecondShift << kSecondShift; }

int64_t NextIncarnation(int64_t known, int64_t timeline) {
  return FirstIncarnation(std::max(known, timeline)) + StartsOf(known) + 1;
}

int64_t StartsOf(int64_t incarnation) { return incarnation & ((int64_t{1} << kSecondShift) - 1); }

bool IsOfEarlierTimeline(int64_t incarnation, int64_t timeline) {
  return FirstIncarnation(incarnation) != 0 && incarnation < FirstIncarnation(timeline);
}

int64_t TimelineOfManifest(int64_t number) {
  return number >> kSecondShift == 0 ? number << kSecondShift : number;
}

}  // namespace cairn
