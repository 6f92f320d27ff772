// Tells whether a file has changed.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace cairn {

// Of a file that was there: another one, or other bytes, have another stamp, unless the clock of
// the file system stood still in between (a few milliseconds) and the size is the same.
struct FileStamp {
  int64_t device = 0;
  int64_t inode = 0;
  int64_t bytes = -1;  // -1: there is no such file
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
