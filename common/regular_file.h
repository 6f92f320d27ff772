// Opens files at paths that callers or other files name, so that a FIFO, a device or an endless
// file in their place is an error instead of a read that never ends.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/descriptor.h"

namespace cairn {

struct RegularFile {
  Descriptor fd;
  int64_t bytes = 0;  // when it was opened
};

// Opens `path`, or the file that a link there names, for reading. kFailedPrecondition: something
// else is there; names its type. kNotFound, kPermissionDenied, kUnavailable: the system's error.
absl::StatusOr<RegularFile> OpenRegularFile(const std::string& path);

// The bytes of the file at `path`. kOutOfRange: more than `max_bytes`; at most that much is read.
// Else as OpenRegularFile.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t max_bytes);

}  // namespace cairn
