// Resources that this process holds, for tests that check that nothing is left over.
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

// Memory of this process that is in RAM.
inline int64_t ResidentBytes() {
  constexpr int64_t kPageBytes = 4096;
  int64_t pages = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * kPageBytes;
}

// Number of mapped shared memories of the local transport.
inline int64_t SharedRingMappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("/memfd:cairn") != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace cairn
