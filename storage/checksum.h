// The checksum that ends a record: XXH3, 64 bits, seed 0 (Yann Collet, xxHash specification at
// https://github.com/Cyan4973/xxHash). It reads at the memory's speed where zlib's CRC-32 took 40 %
// of the time of loading dense images.
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

// Of the pieces as if they lay one after the other.
uint64_t ChecksumOf(absl::Span<const absl::string_view> pieces);

// Of a file's bytes, and how many they are: `xxhsum -H3` computes the same.
struct FileSum {
  int64_t bytes = 0;
  uint64_t checksum = 0;
};
// kCancelled: `*cancelled` was set meanwhile; null: it never is. Else as OpenRegularFile
// (common/regular_file.h).
absl::StatusOr<FileSum> ChecksumOfFile(const std::string& path,
                                       const std::atomic<bool>* cancelled = nullptr);

}  // namespace cairn
