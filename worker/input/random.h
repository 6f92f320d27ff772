// Random numbers that depend only on their seed, on every machine.
#pragma once

#include <cstdint>

#include "common/hash.h"

namespace cairn {

// SplitMix64. Thread safety: none.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    const uint64_t result = MixBits(state_);
    state_ += 0x9e3779b97f4a7c15ULL;
    return result;
  }
  // In [0, bound); bound > 0. The bias is below bound / 2^64.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// Combines two numbers into one seed; (a, b) and (b, a) differ.
constexpr uint64_t CombineSeeds(uint64_t a, uint64_t b) { return MixBits(MixBits(a) ^ b); }

}  // namespace cairn
