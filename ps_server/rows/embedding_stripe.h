// The rows of an embedding table whose keys fall into one hash bucket.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps_server/rows/departed_rows.h"
#include "ps_server/rows/dirty_rows.h"
#include "ps_server/rows/eviction_clock.h"
#include "ps_server/rows/row_ages.h"
#include "ps_server/rows/row_set.h"
#include "ps_server/rows/row_table.h"
#include "ps_server/rows/row_update.h"
#include "ps_server/rows/stripe.h"
#include "ps_server/rows/table_layout.h"
#include "ps_server/rows/waiting_keys.h"

namespace cairn {

// Thread safety: hold mutex() (shared for the const methods).
class EmbeddingStripe final : public Stripe {
 public:
  // `layout` and `pool` must outlive the stripe. The chunks of `pool` have the size that RowTable
  // needs for `layout`.
  EmbeddingStripe(const StripeId& id, const TableLayout& layout, ChunkPool& pool);

  uint32_t row_count() const { return table_.size(); }
  // For lookups. `row` in the methods below is a row found here, or kNone.
  const TableLayout& layout() const { return layout_; }
  const RowTable& table() const { return table_; }

  // A push calls BeginPush, then Take for each of its keys, then AddTo.
  void BeginPush() {
    updates_ = UpdateNumber::Next(updates_);
    table_.ContinueGrowth();
  }
  // Creates the row of `key` if it has none, counts it in `made`, and marks the row as changed.
  // True if the push has taken this row before.
  bool Take(int64_t key, uint32_t& row, int64_t& made);
  // Called instead of Take if the table admits keys only after several pushes and `key` has no row.
  // Counts the push, once however often the push names the key. True: the key gets its row now, by
  // Take.
  bool Admit(int64_t key) { return waiting_->Admit(key, layout_.admit_after_pushes); }
  // Adds the taken rows to `update`, as RowUpdate::Add. RowTable::kNone in `rows` stands for a key
  // that was not admitted. The random rounding of compact rows depends on `origin`, so that a
  // replay of the push gives the same rows.
  void AddTo(RowUpdate& update, const Origin& origin, absl::Span<const uint32_t> rows,
             absl::Span<const uint32_t> positions, bool repeats, const float* gradients);

  // Copies part `part` of a row to `to`. A key without a row has its initial value.
  void CopyRow(size_t part, int64_t key, uint32_t row, float* to) const;
  // As CopyRow, for a row that exists; does not count as a use of the row.
  void PeekRow(size_t part, uint32_t row, float* to) const;
  // An assign calls BeginPush, then SetRow for each of its keys. Sets part `part` of a row; creates
  // the row first, and counts it in `made`, if it does not exist.
  void SetRow(size_t part, int64_t key, uint32_t row, const float* from, int64_t& made);

  // The number of the last update (UpdateNumber); rows carry the number of the update that last
  // changed them.
  uint32_t updates() const { return updates_; }
  // Appends rows in memory in the form of StoredRows: all rows, or the rows changed by updates
  // after `since`, an earlier value of updates().
  void AppendRows(std::optional<uint32_t> since, std::string* bytes) const;
  // Sets a row to another server's copy; creates it first, and counts it in `made`, if it does not
  // exist.
  void SetStoredRow(int64_t key, absl::string_view stored, int64_t& made);

  // Adds rows. A key may repeat; its last row counts. kDataLoss: the rows do not belong to this
  // table.
  absl::Status LoadRows(const StoredRows& rows);
  void LoadColdCount(int64_t rows) { cold_rows_ = counted_cold_ = rows; }
  // Loads a page of waiting keys. `put`: the store that this stripe drains to has the page already.
  // kDataLoss: the table has no waiting keys, or the page is malformed.
  absl::Status LoadWaiting(absl::string_view page, bool put);
  // Called after the last LoadRows and LoadWaiting. kDataLoss: pages are missing.
  absl::Status FinishLoad();

  // The stored form that LoadAges reads; empty if the table deletes no rows.
  std::string EncodeAges() const;
  // Restores ages and updates() from EncodeAges: after LoadRows, and before SetStoredRow and
  // AddCold. kDataLoss: the table deletes no rows, or `bytes` is malformed.
  absl::Status LoadAges(absl::string_view bytes);
  // As RowAges::LastTime and Shift.
  std::optional<int64_t> LastAgeTime() const {
    return ages_ == nullptr ? std::nullopt : ages_->LastTime();
  }
  void ShiftAges(int64_t seconds) {
    if (ages_ != nullptr) ages_->Shift(seconds);
  }

  // Memory for the keys that were pushed and have no row yet (ROW_RULES.md).
  size_t waiting_bytes() const { return waiting_ == nullptr ? 0 : waiting_->bytes(); }
  // Appends all pages of waiting keys, in the form that SetWaiting takes.
  void AppendWaiting(std::string* bytes) const;
  // Replaces the waiting keys with another server's. Errors as LoadWaiting.
  absl::Status SetWaiting(absl::string_view pages);

  bool DrainAhead(StripeBatch& batch, size_t bytes) override;

  // Rows that are on disk and not in memory (COLD_ROWS.md).
  int64_t cold_rows() const { return cold_rows_; }
  // Increases whenever rows leave memory. If a key has no row in memory now, and had none when this
  // number was the same, its row on disk has not changed in between. Read without the lock, the
  // number may be out of date.
  uint64_t departures() const { return departures_.load(std::memory_order_acquire); }
  // Whether the disk's record of `key`, if it exists, equals the key's current row.
  bool ColdIsCurrent(int64_t key) const {
    const uint32_t row = table_.FindOne(key);
    return row == RowTable::kNone || spare_.Has(row);
  }
  // From now on, records in `noted` which rows leave memory, for as long as `noted` exists.
  // Replaces the previous `noted`.
  void NoteDepartures(const std::shared_ptr<DepartedRows>& noted) { noted_ = noted; }
  // `rows` rows that came from another server were written to disk as cold rows. `last_update`: the
  // greatest of their update numbers.
  void AddCold(int64_t rows, uint32_t last_update) {
    cold_rows_ += rows;
    NoteStamp(last_update);
  }
  // Loads a cold row from its record on disk. The row must not be in memory. Returns its number.
  uint32_t Promote(int64_t key, const char* stored);
  // Creates the row of a key that has none in memory or on disk, for a push that follows.
  uint32_t Make(int64_t key, int64_t& made) { return FoundOrMade(RowTable::kNone, key, made); }

  // Evicting rows: call Choose until it returns false; if `writes`, DrainEarly and the batch's
  // Write; then DropChosen. The caller holds writing() throughout.
  struct Leaving {
    std::vector<uint32_t> rows;  // in the order visited, which may wrap around
    bool writes = false;
    uint32_t looked_at = 0;  // rows looked at so far
  };
  // Which rows may be chosen.
  enum class Leave {
    kUntouched,  // not used since the last look, and not often before that
    kAny,
  };
  // Chooses rows after those looked at before, at most `max_rows` in total, and puts those whose
  // records on disk are missing or out of date; about `bytes` per call. False: enough rows are
  // chosen, or every row has been looked at.
  bool Choose(StripeBatch& batch, size_t bytes, Leave which, uint32_t max_rows, Leaving& leaving);
  // As EvictionClock::rounds.
  uint32_t rounds(uint32_t row) const { return clock_.rounds(table_, row); }
  // How many updates the stripe has had since the row's last update.
  uint32_t age(uint32_t row) const { return UpdateNumber::Age(table_.last_update(row), updates_); }
  // As RowTable::MoveChunks.
  bool MoveChunks(const ChunkPool::Vacated& from, size_t max_chunks) {
    return table_.MoveChunks(from, max_chunks);
  }
  // Evicts the chosen rows that were not accessed since they were chosen. Returns how many.
  uint32_t DropChosen(Leave which, const Leaving& leaving);

  // Deleting rows (ROW_RULES.md): the caller acquires writing() before it chooses rows, deletes
  // them, drains the stripe to the same batch under the same lock, writes the batch, and calls
  // EndDeletion.
  // Records how many updates there were at `now` (RowAges), and queues the stripe in `dirty` so
  // that the record is written. Returns the last update whose rows have expired.
  std::optional<uint32_t> NoteAges(int64_t now, DirtyList& dirty);
  void ForgetAges(int64_t now) { ages_->ForgetUpTo(now); }
  // Whether `last_update` is `up_to` or an earlier update.
  bool Old(uint32_t last_update, uint32_t up_to) const {
    return UpdateNumber::Age(last_update, updates_) >= UpdateNumber::Age(up_to, updates_);
  }
  // As RowAges::Park, and queues the stripe in `dirty` if anything is parked. Then call ParkRows
  // until it returns 0, and ParkCold for the rows on disk.
  RowAges::Parked ParkAges(DirtyList& dirty);
  // Gives rows below row `end` their new numbers, at most `most` of them, the last first. Returns
  // the `end` of the next call.
  uint32_t ParkRows(const RowAges::Parked& parked, uint32_t end, uint32_t most);
  // Puts a row that is only on disk, with another number. Call EndParking once `batch` is written.
  void ParkCold(StripeBatch& batch, int64_t key, absl::string_view stored);
  void EndParking() { departures_.fetch_add(1, std::memory_order_release); }
  struct Deleted {
    int64_t in_memory = 0;
    int64_t cold = 0;
  };
  // Deletes the row of `key`, in memory or on disk, unless an update after `up_to` changed it. Call
  // DrainAhead with `batch` first.
  void Delete(StripeBatch& batch, int64_t key, uint32_t up_to, Deleted& deleted);
  void EndDeletion();
  // Whether records of `key` that the disk still has belong to a row that has been deleted.
  bool Deleting(int64_t key) const { return !deleting_.empty() && deleting_.contains(key); }
  bool deleting() const { return !deleting_.empty(); }

 protected:
  void DrainContent(StripeBatch& batch) override;

 private:
  uint32_t FoundOrMade(uint32_t found, int64_t key, int64_t& made);
  void MarkDirty(uint32_t row);
  // A row from another server has this stamp. Without the stripe's number of updates there
  // (LoadAges), the largest stamp stands for it.
  void NoteStamp(uint32_t last_update) {
    if (ages_ == nullptr) updates_ = std::max(updates_, last_update);
  }
  // Called before rows go into `batch`: if it wants every row, marks all as dirty, except those
  // that the disk has as cold rows.
  void PrepareBatch(const StripeBatch& batch);
  void PutRow(StripeBatch& batch, uint32_t row);
  absl::string_view Stored(uint32_t row);
  // Puts a row as a cold row.
  void Spill(StripeBatch& batch, uint32_t row);
  // Removes a row. The last row takes its number, with all marks.
  void RemoveRow(uint32_t row);

  const TableLayout& layout_;
  RowTable table_;
  uint32_t updates_ = 0;                  // stamped on rows, to find keys that one push repeats
  std::unique_ptr<WaitingKeys> waiting_;  // null: the first push of a key creates its row
  std::unique_ptr<RowAges> ages_;         // null: the table deletes no rows
  std::unordered_set<int64_t> deleting_;
  DirtyRows dirty_;
  // Rows in memory that equal their cold records and are not in the segments: they can be evicted
  // without a write. No row is both spare and dirty.
  RowSet spare_;
  int64_t cold_rows_ = 0;
  int64_t counted_cold_ = 0;  // as stored on disk: rows that a load leaves on disk
  EvictionClock clock_;
  std::atomic<uint64_t> departures_{0};
  std::weak_ptr<DepartedRows> noted_;
};

}  // namespace cairn
