// Reads the bytes of a file; decompresses gzip.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace cairn {

// Thread safety: none.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Detects gzip by the first two bytes (1f 8b), not by the name; without `unpack` gzip is read as
  // it is. kNotFound, kPermissionDenied, kInvalidArgument (a directory), kUnavailable; all name the
  // file.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const std::string& path,
                                                          bool unpack = true);

  // Opens a text file: as Open, but skips a UTF-8 byte order mark (ef bb bf) at its start, which
  // spreadsheets and editors write.
  static absl::StatusOr<std::unique_ptr<ByteSource>> OpenText(const std::string& path);

  // Reads up to `size` bytes into `into`; 0 only at the end of the file. kDataLoss: corrupt or
  // truncated gzip, with the offset in the decompressed bytes. kUnavailable: I/O.
  virtual absl::StatusOr<size_t> Read(char* into, size_t size) = 0;

  // The file's size on disk (compressed, if it is gzip), and how much of it has been read.
  int64_t file_bytes() const { return file_bytes_; }
  virtual int64_t file_offset() const = 0;
  // The approximate share of the file before the last `unread` bytes that were read, in [0, 1].
  double share(size_t unread) const {
    const int64_t read = file_offset() - static_cast<int64_t>(unread);
    return std::clamp(static_cast<double>(read) / static_cast<double>(file_bytes_ + 1), 0.0, 1.0);
  }
  // Whether the file is gzip, and Read decompresses it.
  virtual bool unpacks() const { return false; }

 protected:
  explicit ByteSource(int64_t file_bytes) : file_bytes_(file_bytes) {}

 private:
  const int64_t file_bytes_;
};

}  // namespace cairn
