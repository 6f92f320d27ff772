// Numbers that distinguish one attempt, or one start of a process, from another.
#pragma once

#include <cstdint>
#include <random>

namespace cairn {

// Drawn from the system's entropy; greater than 0.
inline int64_t DrawStartNumber() {
  std::random_device random;
  return static_cast<int64_t>(uint64_t{random()} << 31 | (random() >> 1)) | 1;
}

// Increases with the time of the call, as far as clocks agree. Two numbers from the same
// microsecond differ by a random part.
int64_t TimedStartNumber();

}  // namespace cairn
