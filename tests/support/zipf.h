// Zipf-distributed numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "common/hash.h"

namespace cairn {

// Ranks 1 … n, rank k with a probability proportional to k^-s, s not 1: rejection-inversion
// (Hörmann and Derflinger, 1996). Thread safety: const methods may run concurrently.
class Zipf {
 public:
  Zipf(int64_t n, double s)
      : n_(n), s_(s), low_(H(1.5) - 1), high_(H(static_cast<double>(n) + 0.5)) {}

  int64_t Draw(std::mt19937_64& random) const {
    for (;;) {
      const double u = low_ + (high_ - low_) * (static_cast<double>(random() >> 11) * 0x1p-53);
      const double x = std::pow(1 + (1 - s_) * u, 1 / (1 - s_));
      const double k = std::clamp(std::round(x), 1.0, static_cast<double>(n_));
      if (u >= H(k + 0.5) - std::pow(k, -s_)) return static_cast<int64_t>(k);
    }
  }

 private:
  double H(double x) const { return (std::pow(x, 1 - s_) - 1) / (1 - s_); }

  const int64_t n_;
  const double s_;
  const double low_;
  const double high_;
};

// A key for a rank; keys of consecutive ranks are spread over a table.
inline int64_t KeyOfRank(int64_t rank) {
  return static_cast<int64_t>(MixBits(static_cast<uint64_t>(rank)));
}

}  // namespace cairn
