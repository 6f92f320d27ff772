// Times as messages show them.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace cairn {

// "1m2.345s": to the millisecond.
std::string DurationText(absl::Duration duration);
// "14:02:59" of the local day.
std::string TimeOfDayText(absl::Time time);
// "2026-11-22 14:02:59 UTC".
std::string UtcText(absl::Time time);

}  // namespace cairn
