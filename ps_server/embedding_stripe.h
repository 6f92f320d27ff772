// The rows of an embedding table whose keys fall into one hash bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/initializer.h"
#include "common/optimizer/optimizer.h"
#include "ps_server/row_table.h"
#include "ps_server/stripe.h"

namespace cairn {

// What all stripes of a table share. Immutable.
struct TableLayout {
  size_t dim = 1;
  const Optimizer* optimizer = nullptr;
  InitializerConfig initializer;
  uint64_t table_hash = 0;          // HashBytes(name)
  std::vector<float> slot_initial;  // by slot

  size_t floats_per_row() const { return dim * (1 + slot_initial.size()); }
  // What a row costs the memory budget: its floats and at most 32 bytes beside them.
  int64_t row_charge() const {
    return static_cast<int64_t>(floats_per_row() * sizeof(float)) + kRowOverheadBytes;
  }
  static constexpr int64_t kRowOverheadBytes = 32;
};

// Reused from one request to the next. Thread safety: none.
struct TableScratch {
  std::vector<uint32_t> rows;
  std::vector<uint64_t> ordered;
  std::vector<float> gradients;
  std::vector<float*> pointers;
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
  void BeginPush() { ++updates_; }
  // Makes the row of `key` where there is none, counting it in `made`, and marks it as changed.
  // True where the push took it before.
  bool Take(int64_t key, uint32_t& row, int64_t& made);
  // One update of each row taken. Gradient of rows[i]: gradients + positions[i] * dim. `repeats`:
  // rows may be among them several times; their gradients are summed in order.
  void Apply(const UpdateStep& step, absl::Span<const uint32_t> rows,
             absl::Span<const uint32_t> positions, bool repeats, const float* gradients,
             TableScratch& scratch);

  // Part `part` of a row. An absent key yields its initial value.
  void CopyRow(size_t part, int64_t key, uint32_t row, float* to) const;
  // An assign is BeginPush, SetRow for each of its keys: sets part `part` of a row, made first
  // where absent, and counted in `made` then.
  void SetRow(size_t part, int64_t key, uint32_t row, const float* from, int64_t& made);
  // Rows [first, first + count): keys and part `part`.
  void Copy(size_t part, uint32_t first, uint32_t count, int64_t* keys, float* values) const;

  // The number of its last update, which the rows it changed carry; starts over after 2^32.
  uint32_t updates() const { return updates_; }
  // Appends rows as StoredRows has them: all, or those changed by updates after `since`, which is
  // what updates() was.
  void AppendRows(std::optional<uint32_t> since, std::string* bytes) const;
  // Sets one row as another server had it, made first where absent, and counted in `made` then.
  void SetStoredRow(int64_t key, absl::string_view stored, int64_t& made);

  // Sets rows, whose keys may come again: the last one counts. kDataLoss: they are not of this
  // table.
  absl::Status LoadRows(const StoredRows& rows);
  // After the last LoadRows.
  void FinishLoad() { table_.FinishAppending(); }

  bool DrainAhead(StripeBatch& batch, size_t bytes) override;

 protected:
  void DrainContent(StripeBatch& batch) override;

 private:
  uint32_t FoundOrMade(uint32_t found, int64_t key, int64_t& made);
  void ApplyOnce(const UpdateStep& step, absl::Span<const uint32_t> rows,
                 absl::Span<const uint32_t> positions, const float* gradients,
                 TableScratch& scratch);
  void ApplySummed(const UpdateStep& step, absl::Span<const uint32_t> rows,
                   absl::Span<const uint32_t> positions, const float* gradients,
                   TableScratch& scratch);
  void MarkDirty(uint32_t row);
  void MarkEveryRow();
  // Puts dirty rows by their bits from word `word` on, `max_rows` or a few more; they are clean
  // then. Returns the word it came to.
  size_t PutDirty(StripeBatch& batch, size_t word, size_t max_rows);
  void PutRow(StripeBatch& batch, uint32_t row);

  const TableLayout& layout_;
  RowTable table_;
  uint32_t updates_ = 0;  // stamps rows, to find keys that one push repeats
  // Rows to write: a bit each, how many, and their numbers while they are few.
  std::vector<uint64_t> dirty_bits_;
  size_t dirty_count_ = 0;
  std::vector<uint32_t> dirty_rows_;
  bool many_dirty_ = false;
  // Of DrainAhead, between the batch's first call and Drain.
  bool sweeping_ = false;
  size_t sweep_word_ = 0;
  int sweeps_ = 0;
};

}  // namespace cairn
