#include "ps_server/moves/arriving_rows.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/status.h"
#include "ps_server/moves/move_pieces.h"
#include "storage/bytes.h"
#include "storage/cold_rows.h"

namespace cairn {
namespace {

// Returns `map` without the buckets and shards that `there` has on this server already (index -1).
VariableSpec ArrivingSpec(const VariableSpec& there, const VariableSpec& map,
                          int32_t server_index) {
  VariableSpec spec = map;
  for (size_t i = 0; i < spec.bucket_ps.size(); ++i) {
    if (there.bucket_ps[i] == server_index) spec.bucket_ps[i] = -1;
  }
  for (size_t i = 0; i < spec.shards.size(); ++i) {
    if (there.shards[i].ps == server_index) spec.shards[i].ps = -1;
  }
  return spec;
}

// Rows that are looked up on disk, and charged, together.
constexpr size_t kBlockRows = 4096;
// Arriving rows may use this share of the memory budget. They cannot be evicted until the target
// owns them, which may take long if the mover dies.
constexpr int64_t kShare = 4;

// Puts all further changes of the stripe into the batch and writes it.
absl::Status Put(Stripe& stripe, StripeStore& store, StripeBatch& batch) {
  {
    absl::MutexLock lock(&stripe.mutex());
    stripe.Drain(batch);
  }
  RETURN_IF_ERROR(store.Write(batch));
  stripe.EndBatch();
  return absl::OkStatus();
}

absl::Status BeginArrivingBatch(Stripe& stripe) {
  return Annotate(stripe.BeginBatch(), "begin the move again with PREPARE");
}

// For each of `rows` whose index is in `wanted`: whether the store has it as a cold row.
absl::StatusOr<std::vector<bool>> FindCold(const StripeId& id, const StoredRows& rows,
                                           std::vector<size_t> wanted, const StripeStore& store) {
  std::vector<bool> found(rows.size());
  std::ranges::sort(wanted, [&](size_t a, size_t b) { return rows.key(a) < rows.key(b); });
  std::vector<ColdKey> keys;
  for (const size_t i : wanted) keys.push_back({.id = id, .key = rows.key(i)});
  ColdRows cold;
  RETURN_IF_ERROR(store.ReadCold(keys, rows.row_bytes(), cold));
  for (size_t k = 0; k < wanted.size(); ++k) found[wanted[k]] = cold.row(k) != nullptr;
  return found;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArrivingRows>> ArrivingRows::Make(const Variable& there,
                                                                 const VariableSpec& map,
                                                                 int32_t server_index,
                                                                 MemoryBudget& budget) {
  std::unique_ptr<ArrivingRows> arriving(new ArrivingRows(budget));
  ASSIGN_OR_RETURN(
      arriving->variable_,
      Variable::Make(there.id(), there.job(), ArrivingSpec(there.spec(), map, server_index),
                     server_index, there.rows_per_stripe(), budget, &there));
  return arriving;
}

std::vector<StripeId> ArrivingRows::ids() const {
  std::vector<StripeId> ids;
  for (const HostedShard* shard : variable_->shards()) {
    const HostedTable* const table = variable_->table();
    const uint32_t count =
        table != nullptr ? table->bucket_count() : static_cast<uint32_t>(shard->stripe_count());
    for (uint32_t i = 0; i < count; ++i) {
      const Stripe* const stripe = Find(static_cast<uint32_t>(shard->index()), i);
      if (stripe != nullptr) ids.push_back(stripe->id());
    }
  }
  return ids;
}

Stripe* ArrivingRows::Find(uint32_t shard, uint32_t stripe) const {
  if (const HostedTable* const table = variable_->table(); table != nullptr) {
    return shard == 0 && stripe < table->bucket_count() ? table->stripe(stripe) : nullptr;
  }
  HostedDense* const dense = variable_->dense(static_cast<int32_t>(shard));
  return dense == nullptr ? nullptr : dense->stripe(stripe);
}

absl::Status ArrivingRows::WriteBlock(EmbeddingStripe& stripe, const StoredRows& rows, bool cold,
                                      const StripeStore& store, StripeBatch& batch) {
  HostedTable& table = *variable_->table();
  std::vector<size_t> absent;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (stripe.table().FindOne(rows.key(i)) == RowTable::kNone) absent.push_back(i);
  }
  // A row that has arrived as a cold row stays cold, and is not counted again.
  std::vector<bool> known(rows.size());
  if (!absent.empty() && stripe.cold_rows() > 0) {
    ASSIGN_OR_RETURN(known, FindCold(stripe.id(), rows, absent, store));
  }
  const auto is_new = static_cast<int64_t>(absent.size()) - std::ranges::count(known, true);
  const int64_t charge = is_new * table.layout().row_charge();
  const bool room = !cold && rows_bytes_ + charge <= budget_.limit_bytes() / kShare &&
                    budget_.TryAcquireBelow(charge, budget_.load_bytes());
  if (room) {
    variable_->Charge(charge);
    rows_bytes_ += charge;
  }
  std::vector<bool> to_disk = known;
  for (const size_t i : absent) to_disk[i] = known[i] || !room;

  int64_t made = 0;
  int64_t spilled = 0;
  uint32_t last_update = 0;
  const absl::Cleanup counted = [&] { table.CountRows(made, spilled); };
  absl::MutexLock lock(&stripe.mutex());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (to_disk[i]) {
      batch.PutCold(rows.key(i), rows.row(i));
      last_update = std::max(last_update, LoadLittleEndian<uint32_t>(rows.row(i).data()));
    } else {
      stripe.SetStoredRow(rows.key(i), rows.row(i), made);
    }
  }
  spilled = room ? 0 : is_new;
  stripe.AddCold(spilled, last_update & RowTable::kLastUpdate);
  return absl::OkStatus();
}

absl::Status ArrivingRows::WriteRows(const MovePiece& piece, EmbeddingStripe& stripe,
                                     const StripeStore& store, StripeBatch& batch) {
  const size_t row_bytes = stripe.table().stored_bytes();
  const size_t stride = row_bytes + StoredRows::kKeyBytes;
  if (piece.count != static_cast<int64_t>(row_bytes) || piece.bytes.size() % stride != 0) {
    return InvalidArgument(piece.bytes.size(), " bytes of rows of ", piece.count,
                           " bytes; here a row has ", row_bytes, " and its key");
  }
  const bool cold = piece.kind == PieceKind::kColdRows;
  for (size_t at = 0; at < piece.bytes.size(); at += kBlockRows * stride) {
    const StoredRows block(piece.bytes.substr(at, kBlockRows * stride), row_bytes);
    RETURN_IF_ERROR(WriteBlock(stripe, block, cold, store, batch));
  }
  return absl::OkStatus();
}

absl::Status ArrivingRows::WriteStripe(const MovePiece& piece, StripeStore& store) {
  Stripe* const stripe = Find(piece.shard, piece.stripe);
  if (stripe == nullptr) {
    return InvalidArgument("stripe ", piece.stripe, " of shard ", piece.shard,
                           " is not part of the move");
  }
  const bool cold = piece.kind == PieceKind::kColdRows;
  const bool rows = cold || piece.kind == PieceKind::kRows;
  if (rows != (variable_->table() != nullptr)) {
    return absl::InvalidArgumentError(
        "only a table has rows by key, and only a dense variable has images");
  }
  if (cold && !written_.contains(stripe->id())) {
    return absl::InvalidArgumentError("cold rows of a stripe come after those in memory");
  }
  numbered_ = false;
  written_.erase(stripe->id());  // until the write succeeds
  absl::MutexLock writing(&stripe->writing());
  RETURN_IF_ERROR(BeginArrivingBatch(*stripe));
  const std::unique_ptr<StripeBatch> batch = store.NewBatch(stripe->id());
  if (rows) {
    RETURN_IF_ERROR(WriteRows(piece, static_cast<EmbeddingStripe&>(*stripe), store, *batch));
  } else {
    absl::MutexLock lock(&stripe->mutex());
    RETURN_IF_ERROR(static_cast<DenseStripe&>(*stripe).LoadImage(piece.bytes));
  }
  if (cold) {
    CAIRN_CRASH_POINT("move: before cold rows are written");
  } else {
    if (!piece.marks.empty() && piece.marks.front().worker == Watermarks::kExact) {
      exact_.insert(stripe->id());
    }
    absl::MutexLock lock(&stripe->mutex());
    stripe->TakeOver(piece.marks);
  }
  RETURN_IF_ERROR(Put(*stripe, store, *batch));
  written_.insert(stripe->id());
  return absl::OkStatus();
}

// Only sets them in memory: the rows that follow write them to the store.
absl::Status ArrivingRows::SetRules(const MovePiece& piece) {
  Stripe* const stripe = variable_->table() == nullptr ? nullptr : Find(piece.shard, piece.stripe);
  if (stripe == nullptr) {
    return InvalidArgument("stripe ", piece.stripe, ", of row rules, is not part of the move");
  }
  auto& table_stripe = static_cast<EmbeddingStripe&>(*stripe);
  int64_t more = 0;
  {
    absl::MutexLock lock(&stripe->mutex());
    more -= static_cast<int64_t>(table_stripe.waiting_bytes());
    const absl::Status set = piece.kind == PieceKind::kWaiting
                                 ? table_stripe.SetWaiting(piece.bytes)
                                 : table_stripe.LoadAges(piece.bytes);
    if (!set.ok()) return absl::InvalidArgumentError(set.message());
    more += static_cast<int64_t>(table_stripe.waiting_bytes());
  }
  variable_->table()->CountWaiting(more);
  if (more > 0) budget_.Force(more);
  if (more > 0) variable_->Charge(more);
  if (more < 0) variable_->GiveBack(-more);
  return absl::OkStatus();
}

absl::Status ArrivingRows::WriteNumbers(const MovePiece& piece, StripeStore& store) {
  for (const StripeId& id : ids()) {
    if (exact_.contains(id)) continue;
    Stripe& stripe = *Find(id.shard, id.stripe);
    {
      absl::MutexLock lock(&stripe.mutex());
      for (const Watermark& mark : piece.marks) {
        stripe.RaiseWatermark({.worker = mark.worker, .sequence = mark.sequence});
      }
    }
    absl::MutexLock writing(&stripe.writing());
    RETURN_IF_ERROR(BeginArrivingBatch(stripe));
    const std::unique_ptr<StripeBatch> batch = store.NewBatch(id);
    RETURN_IF_ERROR(Put(stripe, store, *batch));
  }
  numbered_ = true;
  return absl::OkStatus();
}

absl::Status ArrivingRows::WriteShard(const MovePiece& piece) {
  for (HostedShard* shard : variable_->shards()) {
    if (shard->index() != static_cast<int32_t>(piece.shard)) continue;
    shard->TakeOver({.variable = variable_->id(),
                     .shard = piece.shard,
                     .update_count = piece.count,
                     .watermarks = piece.marks});
    return absl::OkStatus();
  }
  return InvalidArgument("shard ", piece.shard, " is not part of the move");
}

absl::Status ArrivingRows::Write(absl::string_view pieces, StripeStore& store) {
  while (!pieces.empty()) {
    ASSIGN_OR_RETURN(const MovePiece piece, TakePiece(&pieces));
    switch (piece.kind) {
      case PieceKind::kRows:
      case PieceKind::kColdRows:
      case PieceKind::kImage: RETURN_IF_ERROR(WriteStripe(piece, store)); break;
      case PieceKind::kShard: RETURN_IF_ERROR(WriteShard(piece)); break;
      case PieceKind::kNumbers: RETURN_IF_ERROR(WriteNumbers(piece, store)); break;
      case PieceKind::kIncarnations: incarnations_ = piece.marks; break;
      case PieceKind::kWaiting:
      case PieceKind::kAges: RETURN_IF_ERROR(SetRules(piece)); break;
    }
    CAIRN_CRASH_POINT("move: a piece is written");
  }
  return absl::OkStatus();
}

absl::Status ArrivingRows::CheckWhole() const {
  const size_t wanted = ids().size();
  if (written_.size() == wanted && numbered_) return absl::OkStatus();
  return FailedPrecondition("the move has ", wanted, " stripes, of which ", written_.size(),
                            " have arrived", numbered_ ? "" : ", without the workers' sequences",
                            ": send what the source reads first");
}

std::vector<ShardRecord> ArrivingRows::shards() const {
  std::vector<ShardRecord> records;
  for (const HostedShard* shard : variable_->shards()) {
    shard->Read(records.emplace_back());
    records.back().variable = variable_->id();
  }
  return records;
}

}  // namespace cairn
