// Opens files whose paths come from callers or from other files. A FIFO, a device or an endless
// file at such a path is an error instead of a read that never ends.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/descriptor.h"

namespace cairn {

struct RegularFile {
  Descriptor fd;
  int64_t bytes = 0;  // at the time of opening
};

// Opens `path`, or the file that a link there points to, for reading. kFailedPrecondition: `path`
// is not a regular file; names its type. kNotFound, kPermissionDenied, kUnavailable: the system's
// error.
absl::StatusOr<RegularFile> OpenRegularFile(const std::string& path);

// The contents of the file at `path`. kOutOfRange: the file has more than `max_bytes`; no more than
// one byte beyond that is read. Other errors as for OpenRegularFile.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t max_bytes);

}  // namespace cairn
