// What a moving variable's rows look like on their way from one server to another: pieces, one
// after the other, each with a header of fixed size. Both servers are of the same release.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "storage/stripe_store.h"

namespace cairn {

enum class PieceKind : uint32_t {
  kRows = 1,     // of a table's stripe: StoredRows; those that changed since the piece before
  kImage = 2,    // of a dense stripe, whole
  kShard = 3,    // a shard's update count and watermarks
  kNumbers = 4,  // how far every worker is: all stripes that were always the source's have so much
  kIncarnations = 5,  // of every worker, in the place of sequences: lower ones are fenced
  kWaiting = 6,       // of a table's stripe: WaitingKeys, all of them; its kRows follow
  kAges = 7,          // of a table's stripe: RowAges; its kRows follow
  kColdRows = 8,      // as kRows, which came before, of rows that the source has on disk alone
};

struct MovePiece {
  PieceKind kind = PieceKind::kRows;
  uint32_t shard = 0;
  uint32_t stripe = 0;
  int64_t count = 0;  // kRows, kColdRows: bytes of a row without its key; kShard: updates
  std::vector<Watermark> marks;
  absl::string_view bytes;
};

void AppendPiece(const MovePiece& piece, std::string* to);
// Takes the first piece off `bytes`, which its view stays in. kInvalidArgument: not such bytes.
absl::StatusOr<MovePiece> TakePiece(absl::string_view* bytes);

}  // namespace cairn
