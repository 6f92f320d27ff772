// What this process holds, for tests that see to it that nothing is left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace cairn {

inline int64_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// Shared memory of the local transport that is mapped.
inline int64_t SharedRingMappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("/memfd:cairn") != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace cairn
