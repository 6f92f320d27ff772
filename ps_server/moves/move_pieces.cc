#include "ps_server/moves/move_pieces.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/timeline.h"
#include "storage/bytes.h"
#include "thrift/number_limits.h"

namespace cairn {
namespace {

constexpr size_t kMarkBytes = sizeof(uint32_t) + sizeof(uint64_t);

template <typename T>
T Take(absl::string_view* from) {
  const T value = LoadLittleEndian<T>(from->data());
  from->remove_prefix(sizeof(T));
  return value;
}

absl::Status CheckMark(PieceKind kind, const Watermark& mark) {
  const bool of_start = kind == PieceKind::kIncarnations;
  const bool can_hello = mark.worker >= 0 && mark.worker < kTimelineWorker;
  const int64_t most = of_start ? kMaxIncarnation : kMaxStep;
  if ((can_hello || !of_start) && mark.sequence >= 0 && mark.sequence <= most) {
    return absl::OkStatus();
  }
  return InvalidArgument("a piece of a move has ", of_start ? "incarnation " : "sequence ",
                         mark.sequence, " of worker ", mark.worker, "; 0 to ", most, " are allowed",
                         of_start ? absl::StrCat(", of workers 0 to ", kTimelineWorker - 1) : "");
}

}  // namespace

void AppendPiece(const MovePiece& piece, absl::FunctionRef<void(std::string*)> append_bytes,
                 std::string* to) {
  AppendLittleEndian(static_cast<uint32_t>(piece.kind), *to);
  AppendLittleEndian(piece.shard, *to);
  AppendLittleEndian(piece.stripe, *to);
  AppendLittleEndian(static_cast<uint64_t>(piece.count), *to);
  AppendLittleEndian(static_cast<uint64_t>(piece.marks.size()), *to);
  const size_t size_at = to->size();
  AppendLittleEndian(uint64_t{0}, *to);
  for (const Watermark& mark : piece.marks) {
    AppendLittleEndian(static_cast<uint32_t>(mark.worker), *to);
    AppendLittleEndian(static_cast<uint64_t>(mark.sequence), *to);
  }
  const size_t begin = to->size();
  append_bytes(to);
  StoreLittleEndian(static_cast<uint64_t>(to->size() - begin), to->data() + size_at);
}

void AppendPiece(const MovePiece& piece, std::string* to) {
  AppendPiece(
      piece, [&](std::string* bytes) { bytes->append(piece.bytes.data(), piece.bytes.size()); },
      to);
}

absl::StatusOr<MovePiece> TakePiece(absl::string_view* bytes) {
  constexpr size_t kHeaderBytes = 3 * sizeof(uint32_t) + 3 * sizeof(uint64_t);
  const size_t found = bytes->size();
  const auto cut = [found] {
    return InvalidArgument("the last ", found,
                           " bytes of the data are not a whole piece of a move");
  };
  if (found < kHeaderBytes) return cut();
  MovePiece piece;
  const uint32_t kind = Take<uint32_t>(bytes);
  piece.kind = static_cast<PieceKind>(kind);
  piece.shard = Take<uint32_t>(bytes);
  piece.stripe = Take<uint32_t>(bytes);
  piece.count = static_cast<int64_t>(Take<uint64_t>(bytes));
  const uint64_t marks = Take<uint64_t>(bytes);
  const uint64_t content = Take<uint64_t>(bytes);
  const bool known = kind >= static_cast<uint32_t>(PieceKind::kRows) &&
                     kind <= static_cast<uint32_t>(PieceKind::kColdRows);
  if (!known || piece.count < 0 || piece.count > kMaxStep || marks > bytes->size() / kMarkBytes ||
      content > bytes->size() - marks * kMarkBytes) {
    return cut();
  }
  piece.marks.reserve(marks);
  for (uint64_t i = 0; i < marks; ++i) {
    const auto worker = static_cast<int32_t>(Take<uint32_t>(bytes));
    const auto sequence = static_cast<int64_t>(Take<uint64_t>(bytes));
    piece.marks.push_back({.worker = worker, .sequence = sequence});
    RETURN_IF_ERROR(CheckMark(piece.kind, piece.marks.back()));
  }
  piece.bytes = bytes->substr(0, content);
  bytes->remove_prefix(content);
  return piece;
}

}  // namespace cairn
