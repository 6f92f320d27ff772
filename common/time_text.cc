#include "common/time_text.h"

namespace cairn {

std::string DurationText(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

std::string TimeOfDayText(absl::Time time) {
  return absl::FormatTime("%H:%M:%S", time, absl::LocalTimeZone());
}

}  // namespace cairn
