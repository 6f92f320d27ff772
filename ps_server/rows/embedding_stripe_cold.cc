// How rows of a stripe are evicted and loaded again (COLD_ROWS.md), and deleted (ROW_RULES.md).
#include <algorithm>
#include <cstring>
#include <memory>

#include "common/status.h"
#include "ps_server/rows/embedding_stripe.h"

namespace cairn {

uint32_t EmbeddingStripe::Promote(int64_t key, const char* stored) {
  const uint32_t row = table_.FindOrInsert(key).first;
  std::memcpy(table_.stored(row), stored, table_.stored_bytes());
  table_.Untouch(row);
  spare_.Add(row);
  --cold_rows_;
  return row;
}

void EmbeddingStripe::Spill(StripeBatch& batch, uint32_t row) {
  PrepareBatch(batch);
  dirty_.BeginBatch();
  batch.PutCold(table_.key(row), Stored(row));
  batch.PutGone(table_.key(row));
  dirty_.Remove(row);
  spare_.Add(row);
}

bool EmbeddingStripe::Choose(StripeBatch& batch, size_t bytes, Leave which, uint32_t max_rows,
                             Leaving& leaving) {
  // Looking at a row costs a cache miss: limit the number per call, so that pushes do not wait
  // long.
  constexpr uint32_t kLooks = 8192;
  size_t left = std::max<size_t>(1, bytes / table_.stored_bytes());
  const uint32_t rows = table_.size();
  for (uint32_t looks = 0; looks < kLooks && left > 0; ++looks) {
    if (leaving.looked_at >= rows || leaving.rows.size() >= max_rows) return false;
    const uint32_t row = clock_.Next(rows);
    ++leaving.looked_at;
    if (which == Leave::kUntouched && clock_.PassesOver(table_, row)) continue;
    leaving.rows.push_back(row);
    if (spare_.Has(row)) continue;
    Spill(batch, row);
    leaving.writes = true;
    --left;
  }
  return true;
}

uint32_t EmbeddingStripe::DropChosen(Leave which, const Leaving& leaving) {
  std::vector<uint32_t> rows = leaving.rows;
  std::ranges::sort(rows);  // the search may have wrapped around
  const std::shared_ptr<DepartedRows> noted = noted_.lock();
  uint32_t dropped = 0;
  for (size_t i = rows.size(); i-- > 0;) {
    const uint32_t row = rows[i];
    if (!spare_.Has(row) || (which == Leave::kUntouched && table_.touched(row))) continue;
    if (noted != nullptr) noted->Add(table_, row);
    RemoveRow(row);  // the last row, which takes this number, stays: the loop has passed it
    ++cold_rows_;
    ++dropped;
  }
  if (dropped == 0) return 0;
  departures_.fetch_add(1, std::memory_order_release);
  table_.TrimMemory();
  return dropped;
}

void EmbeddingStripe::RemoveRow(uint32_t row) {
  const uint32_t last = table_.size() - 1;
  table_.Remove(row);
  spare_.Renumber(last, row);
  dirty_.Renumber(last, row);
  clock_.Renumber(last, row);
}

std::optional<uint32_t> EmbeddingStripe::NoteAges(int64_t now, DirtyList& dirty) {
  // Otherwise, if no push comes any more, the record stays only in memory, and after every restart
  // the rows would live for another lifetime.
  if (ages_->Note(updates_, now)) Touch(Origin{}, dirty);
  return ages_->ExpiredUpTo(now);
}

RowAges::Parked EmbeddingStripe::ParkAges(DirtyList& dirty) {
  RowAges::Parked parked = ages_->Park(updates_);
  if (!parked.marks.empty()) Touch(Origin{}, dirty);
  return parked;
}

uint32_t EmbeddingStripe::ParkRows(const RowAges::Parked& parked, uint32_t end, uint32_t most) {
  end = std::min(end, table_.size());
  const uint32_t begin = end > most ? end - most : 0;
  for (uint32_t row = begin; row < end; ++row) {
    const uint32_t number = parked.NumberOf(table_.last_update(row));
    if (number == table_.last_update(row)) continue;
    MarkDirty(row);
    table_.set_last_update(row, number);
  }
  return begin;
}

void EmbeddingStripe::ParkCold(StripeBatch& batch, int64_t key, absl::string_view stored) {
  // A row that was loaded meanwhile keeps its number, and lives somewhat longer.
  if (table_.FindOne(key) == RowTable::kNone) batch.PutCold(key, stored);
}

void EmbeddingStripe::Delete(StripeBatch& batch, int64_t key, uint32_t up_to, Deleted& deleted) {
  const uint32_t row = table_.FindOne(key);
  if (row != RowTable::kNone) {
    if (!Old(table_.last_update(row), up_to)) return;
    RemoveRow(row);
    batch.PutGone(key);
    ++deleted.in_memory;
  } else {
    --cold_rows_;
    ++deleted.cold;
  }
  // The disk may have an older record even of a row in memory.
  batch.DropCold(key);
  deleting_.insert(key);
  departures_.fetch_add(1, std::memory_order_release);
}

void EmbeddingStripe::EndDeletion() {
  deleting_.clear();
  departures_.fetch_add(1, std::memory_order_release);
  table_.TrimMemory();
}

std::string EmbeddingStripe::EncodeAges() const {
  return ages_ == nullptr ? std::string() : ages_->Encode(updates_);
}

absl::Status EmbeddingStripe::LoadAges(absl::string_view bytes) {
  if (ages_ == nullptr) {
    return absl::DataLossError("row ages, in a table that deletes no rows");
  }
  // The stamps of rows do not tell the number: after it has started over, the largest ones are old.
  ASSIGN_OR_RETURN(updates_, ages_->Decode(bytes));
  return absl::OkStatus();
}

}  // namespace cairn
