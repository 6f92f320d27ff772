// The format in which the rows of a moving variable travel from one server to another: consecutive
// pieces, each with a header of fixed size. Both servers must be of the same release.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "storage/stripe_store.h"

namespace cairn {

enum class PieceKind : uint32_t {
  kRows = 1,          // of a table's stripe: StoredRows that changed since its previous piece
  kImage = 2,         // of a dense stripe, whole
  kShard = 3,         // a shard's update count and watermarks
  kNumbers = 4,       // last sequence of every worker, for stripes that had not moved before
  kIncarnations = 5,  // incarnation of every worker, in place of a sequence: lower ones are fenced
  kWaiting = 6,       // of a table's stripe: all WaitingKeys; its kRows follow
  kAges = 7,          // of a table's stripe: RowAges; its kRows follow
  kColdRows = 8,      // as kRows, and after them: rows that the source has only on disk
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
// The same with the bytes that `append_bytes` appends, instead of piece.bytes.
void AppendPiece(const MovePiece& piece, absl::FunctionRef<void(std::string*)> append_bytes,
                 std::string* to);
// Takes the first piece off `bytes`; the piece refers to the memory of `bytes`. kInvalidArgument:
// malformed.
absl::StatusOr<MovePiece> TakePiece(absl::string_view* bytes);

}  // namespace cairn
