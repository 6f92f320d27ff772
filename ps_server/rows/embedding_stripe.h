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
#include "common/optimizer/optimizer.h"
#include "common/variables/initializer.h"
#include "common/variables/row_layout.h"
#include "ps_server/rows/row_ages.h"
#include "ps_server/rows/row_table.h"
#include "ps_server/rows/stripe.h"
#include "ps_server/rows/waiting_keys.h"

namespace cairn {

// What all stripes of a table share. Immutable.
struct TableLayout {
  size_t dim = 1;
  const Optimizer* optimizer = nullptr;
  InitializerConfig initializer;
  uint64_t table_hash = 0;          // HashBytes(name)
  std::vector<float> slot_initial;  // by slot
  RowStorage storage;
  RowLayout row;  // HostedTable makes it of the others
  // RowRules.
  uint32_t admit_after_pushes = 1;
  int64_t expire_after_seconds = 0;
  bool deletes_rows = false;

  // What a row costs the memory budget: its numbers and at most 32 bytes beside them.
  int64_t row_charge() const { return static_cast<int64_t>(row.bytes()) + kRowOverheadBytes; }
  static constexpr int64_t kRowOverheadBytes = 32;
};

// Reused from one request to the next. Thread safety: none.
struct TableScratch {
  std::vector<uint32_t> rows;
  std::vector<uint64_t> ordered;
  std::vector<float> gradients;
  std::vector<float*> pointers;
  std::vector<uint32_t> updated;             // rows, of one call of the optimizer
  std::vector<float> expanded;               // theirs
  std::vector<uint32_t> admitted;            // rows
  std::vector<uint32_t> admitted_positions;  // of their gradients
  struct Absent {
    uint32_t group = 0;  // of a window
    uint32_t at = 0;     // among the keys
  };
  std::vector<Absent> absent;  // keys without a row
};

// Rows of a stripe that left its memory and had been changed by an update after `since`.
struct DepartedRows {
  static constexpr uint32_t kNever = UINT32_MAX;
  uint32_t since = kNever;
  std::vector<int64_t> keys;  // some of them several times
  bool too_many = false;      // to be noted: any row may have left, and `keys` is empty
};

// Part 0 of a row is the value, part s + 1 is slot s.
// Thread safety: hold mutex() (shared for the const methods).
class EmbeddingStripe final : public Stripe {
 public:
  // `layout` and `pool`, whose chunks are a RowTable's of that layout, outlive the stripe.
  EmbeddingStripe(const StripeId& id, const TableLayout& layout, ChunkPool& pool);

  uint32_t row_count() const { return table_.size(); }
  // To look rows up. A row found, or kNone, is what `row` means below.
  const RowTable& table() const { return table_; }

  // A push is BeginPush, Take for each of its keys, Apply.
  void BeginPush() { updates_ = (updates_ + 1) & RowTable::kLastUpdate; }
  // Makes the row of `key` where there is none, counting it in `made`, and marks it as changed.
  // True where the push took it before.
  bool Take(int64_t key, uint32_t& row, int64_t& made);
  // Instead of Take where the table admits keys after some pushes and `key` has no row: counts the
  // push, once for all of the key's places in it. True: it gets its row, by Take.
  bool Admit(int64_t key) { return waiting_->Admit(key, layout_.admit_after_pushes); }
  // One update of each row taken. Gradient of rows[i]: gradients + positions[i] * dim. `repeats`:
  // rows may be among them several times; their gradients are summed in order. RowTable::kNone: of
  // a key that was not admitted. Compact rows are rounded as `origin` says, so that they are the
  // same where the push is applied anew.
  void Apply(const UpdateStep& step, const Origin& origin, absl::Span<const uint32_t> rows,
             absl::Span<const uint32_t> positions, bool repeats, const float* gradients,
             TableScratch& scratch);

  // Part `part` of a row. An absent key yields its initial value.
  void CopyRow(size_t part, int64_t key, uint32_t row, float* to) const;
  // Of a row that is there, without its being used by that.
  void PeekRow(size_t part, uint32_t row, float* to) const;
  // An assign is BeginPush, SetRow for each of its keys: sets part `part` of a row, made first
  // where absent, and counted in `made` then.
  void SetRow(size_t part, int64_t key, uint32_t row, const float* from, int64_t& made);

  // The number of its last update, which the rows it changed carry; starts over after 2^31.
  uint32_t updates() const { return updates_; }
  // Appends rows in memory as StoredRows has them: all, or those changed by updates after `since`,
  // which is what updates() was.
  void AppendRows(std::optional<uint32_t> since, std::string* bytes) const;
  // Sets one row as another server had it, made first where absent, and counted in `made` then.
  void SetStoredRow(int64_t key, absl::string_view stored, int64_t& made);

  // Sets rows, whose keys may come again: the last one counts. kDataLoss: they are not of this
  // table.
  absl::Status LoadRows(const StoredRows& rows);
  void LoadColdCount(int64_t rows) { cold_rows_ = counted_cold_ = rows; }
  // A page of waiting keys. `put`: the store that the stripe is drained to has it. kDataLoss: the
  // table has none, or it is no such page.
  absl::Status LoadWaiting(absl::string_view page, bool put);
  // After the last LoadRows and LoadWaiting. kDataLoss: something is missing.
  absl::Status FinishLoad();

  // What LoadAges takes; empty of a table that deletes no rows.
  std::string EncodeAges() const;
  // As it was encoded. kDataLoss: the table deletes no rows, or not such bytes.
  absl::Status LoadAges(absl::string_view bytes);

  // Keys that were pushed and have no row yet (ROW_RULES.md).
  size_t waiting_bytes() const { return waiting_ == nullptr ? 0 : waiting_->bytes(); }
  // All pages, as SetWaiting takes them.
  void AppendWaiting(std::string* bytes) const;
  // As another server had them. Errors as LoadWaiting.
  absl::Status SetWaiting(absl::string_view pages);

  bool DrainAhead(StripeBatch& batch, size_t bytes) override;

  // Cold rows (COLD_ROWS.md): they are on disk and not in memory.
  int64_t cold_rows() const { return cold_rows_; }
  // Rises whenever rows leave memory. A key that has no row in memory, and had none when this was
  // the same, has not changed on disk since. Without the lock: of some moment before.
  uint64_t departures() const { return departures_.load(std::memory_order_acquire); }
  // Whether the disk's record of `key`, where it has one, is its row as it is now.
  bool ColdIsCurrent(int64_t key) const {
    const uint32_t row = table_.FindOne(key);
    return row == RowTable::kNone || spare(row);
  }
  // From now on `noted`, while there is one, is told which rows leave memory; instead of the one
  // before.
  void NoteDepartures(const std::shared_ptr<DepartedRows>& noted) { noted_ = noted; }
  // `rows` were written as cold ones, which this server has had of another one. `last_update`: the
  // greatest of theirs.
  void AddCold(int64_t rows, uint32_t last_update) {
    cold_rows_ += rows;
    updates_ = std::max(updates_, last_update);
  }
  // A cold row comes back, as the disk has it. It must be absent. Returns its row.
  uint32_t Promote(int64_t key, const char* stored);
  // Makes the row of a key that has none anywhere, for a push that follows.
  uint32_t Make(int64_t key, int64_t& made) { return FoundOrMade(RowTable::kNone, key, made); }

  // Rows that are to leave memory: Choose until it returns false, DrainEarly and the batch's Write
  // if `writes`, DropChosen. Whoever does it holds writing() all the while.
  struct Leaving {
    std::vector<uint32_t> rows;  // increasing
    bool writes = false;
    uint32_t looked_at = 0;  // rows
  };
  // Which rows may go.
  enum class Leave {
    kUntouched,  // not used since the last look at them, nor often before
    kAny,
  };
  // A row that was used since the last look stays for so many more, up to kMostRounds of them.
  static constexpr uint32_t kRoundsOfUse = 2;
  static constexpr uint32_t kMostRounds = 7;
  // Chooses among the rows that follow, `max_rows` at most in all, and puts those that are not on
  // disk as they are; about `bytes` a call. False: there are enough, or it has looked at every row.
  bool Choose(StripeBatch& batch, size_t bytes, Leave which, uint32_t max_rows, Leaving& leaving);
  // For how many looks more a row stays that is not used any more.
  uint32_t rounds(uint32_t row) const {
    const uint32_t before = row < rounds_.size() ? rounds_[row] : 0;
    return table_.touched(row) ? std::min(before + kRoundsOfUse, kMostRounds) : before;
  }
  // Updates of the stripe since the row's last.
  uint32_t age(uint32_t row) const {
    return (updates_ - table_.last_update(row)) & RowTable::kLastUpdate;
  }
  // As RowTable::MoveChunks.
  bool MoveChunks(const ChunkPool::Vacated& from, size_t max_chunks) {
    return table_.MoveChunks(from, max_chunks);
  }
  // Those that were not used meanwhile leave. Returns how many.
  uint32_t DropChosen(Leave which, const Leaving& leaving);

  // Rows that are deleted (ROW_RULES.md). Whoever deletes some holds writing() from before it chose
  // them, drains the stripe to the same batch under the same lock, writes it, and calls
  // EndDeletion. Notes how many updates there were at `now`; rows up to this one have expired
  // (RowAges).
  std::optional<uint32_t> NoteAges(int64_t now);
  void ForgetAges(int64_t now) { ages_->ForgetUpTo(now); }
  // Whether a row's last update is `up_to`, or came before it.
  bool Old(uint32_t last_update, uint32_t up_to) const {
    return ((updates_ - last_update) & RowTable::kLastUpdate) >=
           ((updates_ - up_to) & RowTable::kLastUpdate);
  }
  struct Deleted {
    int64_t in_memory = 0;
    int64_t cold = 0;
  };
  // Deletes the row of `key`, in memory or on disk, unless it was changed after update `up_to`.
  // After a DrainAhead of `batch`.
  void Delete(StripeBatch& batch, int64_t key, uint32_t up_to, Deleted& deleted);
  void EndDeletion();
  // What the disk still has of the key is of a row that has been deleted.
  bool Deleting(int64_t key) const { return !deleting_.empty() && deleting_.contains(key); }
  bool deleting() const { return !deleting_.empty(); }

 protected:
  void DrainContent(StripeBatch& batch) override;

 private:
  uint32_t FoundOrMade(uint32_t found, int64_t key, int64_t& made);
  // `draws`: of the push.
  void ApplyTaken(const UpdateStep& step, uint64_t draws, absl::Span<const uint32_t> rows,
                  absl::Span<const uint32_t> positions, bool repeats, const float* gradients,
                  TableScratch& scratch);
  void ApplyOnce(const UpdateStep& step, uint64_t draws, absl::Span<const uint32_t> rows,
                 absl::Span<const uint32_t> positions, const float* gradients,
                 TableScratch& scratch);
  void ApplySummed(const UpdateStep& step, uint64_t draws, absl::Span<const uint32_t> rows,
                   absl::Span<const uint32_t> positions, const float* gradients,
                   TableScratch& scratch);
  // One update of the first `count` rows of scratch.updated, each with its gradient.
  void Update(const UpdateStep& step, uint64_t draws, size_t count, TableScratch& scratch);
  // Of a new row. `expanded`: its floats for a while, of a table that is not plain().
  void InitializeNumbers(int64_t key, uint32_t row, float* expanded);
  void MarkDirty(uint32_t row);
  // MarkDirty(row) throws nothing then.
  void ReserveDirty(uint32_t row);
  void MarkEveryRow();
  // Puts dirty rows by their bits from word `word` on, `max_rows` or a few more; they are clean
  // then. Returns the word it came to.
  size_t PutDirty(StripeBatch& batch, size_t word, size_t max_rows);
  void PutRow(StripeBatch& batch, uint32_t row);
  absl::string_view Stored(uint32_t row);
  bool spare(uint32_t row) const { return Bit(spare_bits_, row); }
  // Whether the hand leaves a row in memory, which takes the marks of its use.
  bool PassedOver(uint32_t row);
  // Puts a row as a cold one.
  void Spill(StripeBatch& batch, uint32_t row);
  void DropRow(uint32_t row);
  void NoteDeparture(uint32_t row, DepartedRows& noted) const;
  // The last row, with what is noted of it, gets its number.
  void RemoveRow(uint32_t row);
  static bool Bit(const std::vector<uint64_t>& bits, uint32_t row) {
    return row / 64 < bits.size() && (bits[row / 64] >> (row % 64) & 1) != 0;
  }

  const TableLayout& layout_;
  RowTable table_;
  uint32_t updates_ = 0;                  // stamps rows, to find keys that one push repeats
  std::unique_ptr<WaitingKeys> waiting_;  // null: a key's first push makes its row
  std::unique_ptr<RowAges> ages_;         // null: the table deletes no rows
  std::unordered_set<int64_t> deleting_;
  // Rows to write: a bit each, how many, and their numbers while they are few.
  std::vector<uint64_t> dirty_bits_;
  size_t dirty_count_ = 0;
  std::vector<uint32_t> dirty_rows_;
  bool many_dirty_ = false;
  // Of DrainAhead, between the batch's first call and Drain.
  bool sweeping_ = false;
  size_t sweep_word_ = 0;
  int sweeps_ = 0;
  // Rows in memory that are as their cold records say, and are not in the segments: they may go.
  std::vector<uint64_t> spare_bits_;
  uint32_t spare_count_ = 0;
  int64_t cold_rows_ = 0;
  int64_t counted_cold_ = 0;  // as the disk has it: rows that a load does not bring to memory
  uint32_t hand_ = 0;         // where Choose goes on
  // By row in memory: for how many more of its rounds the hand passes one that was not used. Empty
  // until it first comes round.
  std::vector<uint8_t> rounds_;
  std::atomic<uint64_t> departures_{0};
  std::weak_ptr<DepartedRows> noted_;
};

}  // namespace cairn
