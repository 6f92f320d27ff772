#include "ps_server/rows/embedding_stripe.h"

#include <algorithm>
#include <cstring>

#include "common/errors.h"
#include "common/hash.h"
#include "common/status.h"
#include "ps_server/rows/copy_floats.h"
#include "storage/bytes.h"

namespace cairn {
namespace {

// Bytes of rows that are loaded before they are indexed; bounds the memory of rows with repeated
// keys.
constexpr size_t kIndexedBytes = 32 << 20;

// The seed for the rounding of a push's rows. Derived from the push's worker and sequence, so that
// a replay rounds in the same way; a push without a worker is never replayed.
uint64_t DrawsOf(const Origin& origin, uint32_t updates, uint64_t table_hash) {
  const bool named = origin.worker != Origin().worker;
  const auto worker = static_cast<uint64_t>(static_cast<int64_t>(origin.worker));
  const uint64_t number = named ? static_cast<uint64_t>(origin.sequence) : updates;
  return MixBits(MixBits(table_hash ^ worker) ^ number);
}

}  // namespace

EmbeddingStripe::EmbeddingStripe(const StripeId& id, const TableLayout& layout, ChunkPool& pool)
    : Stripe(id), layout_(layout), table_(layout.row.bytes(), pool) {
  if (layout.admit_after_pushes > 1) waiting_ = std::make_unique<WaitingKeys>();
  if (layout.deletes_rows) ages_ = std::make_unique<RowAges>(layout.expire_after_seconds);
}

uint32_t EmbeddingStripe::FoundOrMade(uint32_t found, int64_t key, int64_t& made) {
  if (found != RowTable::kNone) return found;
  thread_local std::vector<float> expanded;
  // Allocate before the row exists: it must never be left without its numbers.
  if (!layout_.row.plain()) expanded.resize(layout_.row.floats());
  dirty_.Reserve(table_.size());
  const auto [row, is_new] = table_.FindOrInsert(key);
  if (is_new) {
    layout_.InitialRow(key, expanded.data(), table_.numbers(row));
    ++made;
  }
  return row;
}

bool EmbeddingStripe::Take(int64_t key, uint32_t& row, int64_t& made) {
  const int64_t made_before = made;
  row = FoundOrMade(row, key, made);
  const bool taken = table_.last_update(row) == updates_;
  table_.set_last_update(row, updates_);
  // For a row that was just loaded from disk, this use is the reason for the load, and does not
  // count again.
  if (!taken && made == made_before && !spare_.Has(row)) table_.Touch(row);
  MarkDirty(row);
  return taken;
}

void EmbeddingStripe::AddTo(RowUpdate& update, const Origin& origin,
                            absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions,
                            bool repeats, const float* gradients) {
  const uint64_t draws = layout_.row.plain() ? 0 : DrawsOf(origin, updates_, layout_.table_hash);
  update.Add(layout_, table_, draws, rows, positions, repeats, gradients);
}

void EmbeddingStripe::CopyRow(size_t part, int64_t key, uint32_t row, float* to) const {
  if (row != RowTable::kNone) {
    table_.Touch(row);
    PeekRow(part, row, to);
  } else {
    layout_.InitialPart(part, key, to);
  }
}

void EmbeddingStripe::PeekRow(size_t part, uint32_t row, float* to) const {
  if (layout_.row.plain()) {
    CopyFloats(table_.floats(row) + part * layout_.dim, layout_.dim, to);
  } else {
    layout_.row.ExpandPart(part, table_.numbers(row), to);
  }
}

void EmbeddingStripe::SetRow(size_t part, int64_t key, uint32_t row, const float* from,
                             int64_t& made) {
  if (row == RowTable::kNone && waiting_ != nullptr) waiting_->Forget(key);
  row = FoundOrMade(row, key, made);
  table_.set_last_update(row, updates_);
  layout_.row.SetPart(part, from, table_.numbers(row));
  MarkDirty(row);
}

void EmbeddingStripe::AppendRows(std::optional<uint32_t> since, std::string* bytes) const {
  // The numbering has started over since: every row may have changed.
  if (since.has_value() && *since > updates_) since.reset();
  char key_bytes[sizeof(uint64_t)];
  for (uint32_t row = 0; row < table_.size(); ++row) {
    if (since.has_value() && table_.last_update(row) <= *since) continue;
    StoreLittleEndian(static_cast<uint64_t>(table_.key(row)), key_bytes);
    bytes->append(key_bytes, sizeof(key_bytes));
    // The stamp as stored, without the mark of use.
    const uint32_t update = table_.last_update(row);
    bytes->append(reinterpret_cast<const char*>(&update), sizeof(update));
    bytes->append(reinterpret_cast<const char*>(table_.numbers(row)),
                  table_.stored_bytes() - sizeof(update));
  }
}

void EmbeddingStripe::SetStoredRow(int64_t key, absl::string_view stored, int64_t& made) {
  const auto [row, is_new] = table_.FindOrInsert(key);
  made += is_new;
  std::memcpy(table_.stored(row), stored.data(), table_.stored_bytes());
  NoteStamp(table_.last_update(row));
  MarkDirty(row);
}

void EmbeddingStripe::MarkDirty(uint32_t row) {
  dirty_.Reserve(row);
  spare_.Remove(row);
  dirty_.Add(row);
}

void EmbeddingStripe::PrepareBatch(const StripeBatch& batch) {
  if (!dirty_.in_batch() && batch.wants_every_row()) dirty_.AssignAll(table_.size(), spare_);
}

void EmbeddingStripe::PutRow(StripeBatch& batch, uint32_t row) {
  batch.PutRow(table_.key(row), Stored(row));
}

absl::string_view EmbeddingStripe::Stored(uint32_t row) {
  return {reinterpret_cast<const char*>(table_.stored(row)), table_.stored_bytes()};
}

bool EmbeddingStripe::DrainAhead(StripeBatch& batch, size_t bytes) {
  PrepareBatch(batch);
  const size_t max_rows = std::max<size_t>(1, bytes / table_.stored_bytes());
  return dirty_.TakeAhead(max_rows, [&](uint32_t row) { PutRow(batch, row); });
}

void EmbeddingStripe::DrainContent(StripeBatch& batch) {
  PrepareBatch(batch);
  dirty_.TakeAll([&](uint32_t row) { PutRow(batch, row); });
  const int64_t cold = cold_rows_ + spare_.size();
  if (cold != counted_cold_) batch.SetColdCount(cold);
  counted_cold_ = cold;
  if (waiting_ != nullptr) waiting_->Put(batch);
  if (ages_ != nullptr) batch.PutAges(ages_->Encode(updates_));
}

absl::Status EmbeddingStripe::LoadRows(const StoredRows& rows) {
  if (rows.row_bytes() == 0) {
    table_.RemoveAppended(rows);
    return absl::OkStatus();
  }
  if (rows.row_bytes() != table_.stored_bytes() && rows.size() > 0) {
    return DataLoss("the row of key ", rows.key(0), " has ", rows.row_bytes(), " bytes, not ",
                    table_.stored_bytes());
  }
  updates_ = std::max(updates_, table_.Append(rows));
  if (table_.appended_bytes() >= kIndexedBytes) table_.IndexAppended();
  return absl::OkStatus();
}

absl::Status EmbeddingStripe::LoadWaiting(absl::string_view page, bool put) {
  if (waiting_ == nullptr) {
    return absl::DataLossError("keys wait for their rows, in a table that admits every key");
  }
  return waiting_->Load(page, put);
}

absl::Status EmbeddingStripe::FinishLoad() {
  table_.FinishAppending();
  return waiting_ == nullptr ? absl::OkStatus() : waiting_->FinishLoad();
}

void EmbeddingStripe::AppendWaiting(std::string* bytes) const {
  if (waiting_ != nullptr) waiting_->AppendTo(bytes);
}

absl::Status EmbeddingStripe::SetWaiting(absl::string_view pages) {
  if (waiting_ != nullptr) waiting_->Clear();
  RETURN_IF_ERROR(LoadWaiting(pages, /*put=*/false));
  return waiting_->FinishLoad();
}

}  // namespace cairn
