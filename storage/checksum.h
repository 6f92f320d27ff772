// The checksum at the end of a record: XXH3, 64 bits, seed 0 (Yann Collet, xxHash specification at
// https://github.com/Cyan4973/xxHash). It runs at memory speed, whereas zlib's CRC-32 took 40 % of
// the time of loading dense images.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

inline constexpr size_t kChecksumBytes = 8;

// The checksum of the concatenated pieces.
uint64_t ChecksumOf(absl::Span<const absl::string_view> pieces);

// The checksum and the size of a file; `xxhsum -H3` computes the same checksum.
struct FileSum {
  int64_t bytes = 0;
  uint64_t checksum = 0;
};
// kCancelled: `*cancelled` was set during the call; null: cannot be cancelled. Other errors as
// OpenRegularFile (common/regular_file.h).
absl::StatusOr<FileSum> ChecksumOfFile(const std::string& path,
                                       const std::atomic<bool>* cancelled = nullptr);

}  // namespace cairn
