// The bytes of a file, unpacked where it is gzip.
#pragma once

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

  // Told to be gzip by its first two bytes (1f 8b), not by its name.
  // kNotFound, kPermissionDenied, kInvalidArgument (a directory), kUnavailable; all name the file.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const std::string& path);

  // The same of a file of text: a UTF-8 mark (ef bb bf) at its start, which spreadsheets and
  // editors write, is left out.
  static absl::StatusOr<std::unique_ptr<ByteSource>> OpenText(const std::string& path);

  // Up to `size` bytes into `into`; 0 only at the end of the file.
  // kDataLoss: corrupt or truncated gzip, with the offset of the unpacked bytes. kUnavailable: I/O.
  virtual absl::StatusOr<size_t> Read(char* into, size_t size) = 0;

  // Bytes of the file, packed ones where it is gzip, and how many of them are read.
  int64_t file_bytes() const { return file_bytes_; }
  virtual int64_t file_offset() const = 0;

 protected:
  explicit ByteSource(int64_t file_bytes) : file_bytes_(file_bytes) {}

 private:
  const int64_t file_bytes_;
};

}  // namespace cairn
