// Values for tests of kernels, the same in every run.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace cairn {

// Uniform in [-1, 1).
inline std::vector<float> UniformValues(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

// Mean 0, standard deviation 2.
inline std::vector<float> NormalValues(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

}  // namespace cairn
