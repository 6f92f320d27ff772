#include "common/start_number.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {

int64_t TimedStartNumber() { return absl::ToUnixMicros(absl::Now()) * 64 + DrawStartNumber() % 64; }

}  // namespace cairn
