// Detects changes of a file.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace cairn {

// The state of a file. A replaced or changed file has another stamp, unless its size is the same
// and the file system's clock has not advanced in between (a few milliseconds).
struct FileStamp {
  int64_t device = 0;
  int64_t inode = 0;
  int64_t bytes = -1;  // -1: the file does not exist
  int64_t modified_seconds = 0;
  int64_t modified_nanoseconds = 0;
  int64_t mode = 0;

  static FileStamp Of(const std::string& path) {
    struct stat found = {};
    if (::stat(path.c_str(), &found) != 0) return {};
    return {static_cast<int64_t>(found.st_dev),
            static_cast<int64_t>(found.st_ino),
            static_cast<int64_t>(found.st_size),
            found.st_mtim.tv_sec,
            found.st_mtim.tv_nsec,
            static_cast<int64_t>(found.st_mode)};
  }
  bool operator==(const FileStamp&) const = default;
};

}  // namespace cairn
