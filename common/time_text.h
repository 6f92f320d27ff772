// Text forms of times and durations for messages.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace cairn {

// "1m2.345s": rounded to milliseconds.
std::string DurationText(absl::Duration duration);
// "14:02:59", in local time.
std::string TimeOfDayText(absl::Time time);
// "2026-11-22 14:02:59 UTC".
std::string UtcText(absl::Time time);

}  // namespace cairn
