// A whole file as a string.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace cairn {

// The file's bytes; none if it cannot be read.
inline std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace cairn
