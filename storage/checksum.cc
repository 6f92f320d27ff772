#include "storage/checksum.h"

// The state's struct is public only for programs that link this version; here it is on the stack.
#define XXH_STATIC_LINKING_ONLY
#include <unistd.h>
#include <xxhash.h>
#ifdef CAIRN_XXHASH_DISPATCHES
#include <xxh_x86dispatch.h>
#endif

#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/regular_file.h"
#include "common/status.h"
#include "storage/directory.h"

namespace cairn {

uint64_t ChecksumOf(absl::Span<const absl::string_view> pieces) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  for (const absl::string_view piece : pieces) {
    XXH3_64bits_update(&state, piece.data(), piece.size());
  }
  return XXH3_64bits_digest(&state);
}

absl::StatusOr<FileSum> ChecksumOfFile(const std::string& path,
                                       const std::atomic<bool>* cancelled) {
  constexpr size_t kBufferBytes = 1 << 20;
  ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  const auto buffer = std::make_unique<char[]>(kBufferBytes);
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  FileSum sum;
  // Reads no further than the size at opening, so that reading a growing file ends.
  while (sum.bytes < file.bytes) {
    if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) {
      return Cancelled("reading ", path, " was cancelled");
    }
    const ssize_t got = read(file.fd.get(), buffer.get(), kBufferBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (got == 0) break;
    XXH3_64bits_update(&state, buffer.get(), static_cast<size_t>(got));
    sum.bytes += got;
  }
  sum.checksum = XXH3_64bits_digest(&state);
  return sum;
}

}  // namespace cairn
