#include "ps_server/moves/outgoing_rows.h"

#include <algorithm>
#include <utility>

#include "common/crash_point.h"
#include "common/status.h"
#include "ps_server/moves/move_pieces.h"
#include "ps_server/rows/slices.h"

namespace cairn {

OutgoingRows::OutgoingRows(std::shared_ptr<Variable> variable, const VariableSpec& map,
                           int32_t target)
    : variable_(std::move(variable)) {
  if (HostedTable* const table = variable_->table(); table != nullptr) {
    for (uint32_t bucket = 0; bucket < table->bucket_count(); ++bucket) {
      if (map.bucket_ps[bucket] != target || table->stripe(bucket) == nullptr) continue;
      EmbeddingStripe* const stripe = table->stripe(bucket);
      parts_.push_back(
          {.shard = table, .table = stripe, .cold = std::make_unique<OutgoingCold>(*stripe)});
    }
    if (!parts_.empty()) shards_.push_back(table);
    return;
  }
  for (size_t i = 0; i < map.shards.size(); ++i) {
    HostedDense* const shard = variable_->dense(static_cast<int32_t>(i));
    if (map.shards[i].ps != target || shard == nullptr) continue;
    shards_.push_back(shard);
    for (uint32_t s = 0; s < static_cast<uint32_t>(shard->stripe_count()); ++s) {
      parts_.push_back({.shard = shard, .dense = shard->stripe(s)});
    }
  }
}

bool OutgoingRows::Part::Changed() const {
  absl::ReaderMutexLock lock(&stripe().mutex());
  return read_changes != stripe().changes();
}

int64_t OutgoingRows::Part::memory_bytes() const {
  if (dense != nullptr) return static_cast<int64_t>(dense->memory_bytes());
  absl::ReaderMutexLock lock(&table->mutex());
  const auto row_bytes = static_cast<int64_t>(table->table().stored_bytes());
  return table->row_count() * (row_bytes + static_cast<int64_t>(StoredRows::kKeyBytes)) +
         static_cast<int64_t>(table->waiting_bytes());
}

int64_t OutgoingRows::rows() const {
  int64_t rows = 0;
  for (const Part& part : parts_) {
    if (part.dense != nullptr) {
      rows += part.dense->rows();
    } else {
      absl::ReaderMutexLock lock(&part.table->mutex());
      rows += part.table->row_count() + part.table->cold_rows();
    }
  }
  return rows;
}

int64_t OutgoingRows::bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) {
    bytes += part.memory_bytes();
    if (part.table == nullptr) continue;
    absl::ReaderMutexLock lock(&part.table->mutex());
    const size_t row_bytes = part.table->table().stored_bytes() + StoredRows::kKeyBytes;
    bytes += part.table->cold_rows() * static_cast<int64_t>(row_bytes);
  }
  return bytes;
}

int64_t OutgoingRows::largest_bytes() const {
  int64_t largest = 0;
  for (const Part& part : parts_) largest = std::max(largest, part.memory_bytes());
  return largest;
}

void OutgoingRows::ReadMemory(Part& part, std::string* pieces) {
  MovePiece piece{.shard = part.stripe().id().shard, .stripe = part.stripe().id().stripe};
  absl::ReaderMutexLock lock(&part.stripe().mutex());
  if (part.read_changes == part.stripe().changes()) return;
  part.read_changes = part.stripe().changes();
  piece.marks.assign(part.stripe().watermarks().begin(), part.stripe().watermarks().end());
  if (part.table == nullptr) {
    piece.kind = PieceKind::kImage;
    AppendPiece(
        piece, [&part](std::string* to) { part.dense->AppendImage(to); }, pieces);
    return;
  }
  const auto append_rules = [&](PieceKind kind, absl::string_view bytes) {
    if (bytes.empty()) return;
    AppendPiece({.kind = kind, .shard = piece.shard, .stripe = piece.stripe, .bytes = bytes},
                pieces);
  };
  std::string waiting;
  part.table->AppendWaiting(&waiting);
  append_rules(PieceKind::kWaiting, waiting);
  append_rules(PieceKind::kAges, part.table->EncodeAges());
  piece.count = static_cast<int64_t>(part.table->table().stored_bytes());
  AppendPiece(
      piece, [&part](std::string* to) { part.table->AppendRows(part.read_updates, to); }, pieces);
  part.read_updates = part.table->updates();
  part.cold->Begin();
}

void OutgoingRows::AppendShards(std::string* pieces) const {
  for (const HostedShard* shard : shards_) {
    ShardRecord record;
    shard->Read(record);
    AppendPiece({.kind = PieceKind::kShard,
                 .shard = record.shard,
                 .count = record.update_count,
                 .marks = record.watermarks},
                pieces);
  }
}

absl::Status OutgoingRows::ReadCold(Part& part, const StripeStore& store, int64_t end,
                                    std::string* pieces) {
  const size_t slice = std::min(kSliceBytes, static_cast<size_t>(end));
  std::string rows;
  while (!part.cold->done() && static_cast<int64_t>(pieces->size()) < end) {
    rows.clear();
    RETURN_IF_ERROR(part.cold->Read(store, slice, &rows));
    CAIRN_CRASH_POINT("move: cold rows are read");
    if (rows.empty()) continue;
    AppendPiece({.kind = PieceKind::kColdRows,
                 .shard = part.table->id().shard,
                 .stripe = part.table->id().stripe,
                 .count = static_cast<int64_t>(part.table->table().stored_bytes()),
                 .bytes = rows},
                pieces);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> OutgoingRows::Read(const StripeStore& store, int64_t max_bytes,
                                           std::string* pieces) {
  if (next_ == 0) AppendShards(pieces);
  // Whatever the size of these records, one stripe must fit beside them.
  const int64_t end = static_cast<int64_t>(pieces->size()) + max_bytes;
  for (; next_ < parts_.size() && static_cast<int64_t>(pieces->size()) < end; ++next_) {
    Part& part = parts_[next_];
    // First send the rest of the previous call.
    if (part.cold == nullptr || part.cold->done()) ReadMemory(part, pieces);
    if (part.cold == nullptr) continue;
    RETURN_IF_ERROR(ReadCold(part, store, end, pieces));
    if (!part.cold->done()) break;
  }
  int64_t left = 0;
  for (size_t i = next_; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.cold != nullptr) left += part.cold->bytes_left();
    if (part.Changed()) left += std::max<int64_t>(1, part.memory_bytes());
  }
  if (left == 0) next_ = 0;
  return left;
}

void OutgoingRows::AppendNumbers(absl::Span<const Watermark> numbers,
                                 absl::Span<const Watermark> incarnations,
                                 std::string* pieces) const {
  AppendPiece(
      {.kind = PieceKind::kIncarnations, .marks = {incarnations.begin(), incarnations.end()}},
      pieces);
  AppendPiece({.kind = PieceKind::kNumbers, .marks = {numbers.begin(), numbers.end()}}, pieces);
}

bool OutgoingRows::AllRead() const {
  return std::ranges::all_of(parts_, [](const Part& part) {
    return !part.Changed() && (part.cold == nullptr || part.cold->done());
  });
}

std::vector<StripeId> OutgoingRows::ids() const {
  std::vector<StripeId> ids;
  for (const Part& part : parts_) ids.push_back(part.stripe().id());
  return ids;
}

}  // namespace cairn
