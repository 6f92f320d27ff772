// Numbers that tell one try, or one start, from another.
#pragma once

#include <cstdint>
#include <random>

namespace cairn {

// Drawn from the system's entropy; above 0.
inline int64_t DrawStartNumber() {
  std::random_device random;
  return static_cast<int64_t>(uint64_t{random()} << 31 | (random() >> 1)) | 1;
}

// Rises with the time at which it is taken, as far as clocks agree; two of one microsecond differ
// by chance.
int64_t TimedStartNumber();

}  // namespace cairn
