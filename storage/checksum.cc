#include "storage/checksum.h"

// The state is a public struct only for programs that link this version: it lives on the stack
// here.
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

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

}  // namespace cairn
