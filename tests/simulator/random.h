// Random numbers of a run: the same for the same seed, on every machine.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/hash.h"

namespace cairn::simulator {

// Thread safety: none.
class Random {
 public:
  // Streams of the same seed are independent of each other.
  Random(uint64_t seed, uint64_t stream) : state_(MixBits(seed ^ MixBits(stream + 1))) {}

  uint64_t Bits() {
    state_ += 0x9e3779b97f4a7c15u;
    return MixBits(state_);
  }
  // In [0, bound); bound > 0.
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(Bits() % static_cast<uint64_t>(bound));
  }
  // In [0, 1).
  double Unit() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  bool Chance(double probability) { return Unit() < probability; }
  double Between(double low, double high) { return low + (high - low) * Unit(); }
  // Mean 1.
  double Exponential() { return -std::log1p(-Unit()); }

 private:
  uint64_t state_;
};

}  // namespace cairn::simulator
