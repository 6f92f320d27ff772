// The rows of an embedding table whose keys fall into one hash bucket.
#pragma once

#include <cstddef>
#include <cstdint>
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

// Keys of one request in one stripe: key i belongs to row positions[i] of the request's values.
struct KeyBatch {
  absl::Span<const int64_t> keys;
  absl::Span<const uint32_t> positions;
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
  // How many of `keys` have no row; a repeated key counts each time.
  int64_t CountAbsent(absl::Span<const int64_t> keys, TableScratch& scratch) const;

  // One update of each key's row, made first where absent; gradients of repeated keys are summed in
  // order. `gradients`: [request's keys, dim]. Returns the number of rows made.
  int64_t Push(const UpdateStep& step, const KeyBatch& keys, const float* gradients,
               TableScratch& scratch);
  // Part `part` of each key's row to out[position]. An absent key yields its initial value.
  void Pull(size_t part, const KeyBatch& keys, float* out) const;
  // Sets part `part` of each key's row, made first where absent. Returns the number of rows made.
  int64_t Assign(size_t part, const KeyBatch& keys, const float* values);
  // Rows [first, first + count): keys and part `part`.
  void Copy(size_t part, uint32_t first, uint32_t count, int64_t* keys, float* values) const;

  // Sets the row of `key`, which may come again: the last one counts. kDataLoss: the bytes are no
  // row of this table.
  absl::Status LoadRow(int64_t key, absl::string_view stored);
  // After the last LoadRow.
  void FinishLoad() { table_.IndexAppended(); }

 protected:
  void DrainContent(StripeBatch& batch) override;

 private:
  uint32_t FindOrMake(uint32_t found, int64_t key, int64_t& made);
  // Rows of `keys` into scratch.rows, made where absent, and marked as changed by this update.
  // Returns true where a row occurs twice.
  bool TakeRows(absl::Span<const int64_t> keys, TableScratch& scratch, int64_t& made);
  void ApplyOnce(const UpdateStep& step, const KeyBatch& keys, const float* gradients,
                 TableScratch& scratch);
  void ApplySummed(const UpdateStep& step, const KeyBatch& keys, const float* gradients,
                   TableScratch& scratch);
  void MarkDirty(uint32_t row);

  const TableLayout& layout_;
  RowTable table_;
  uint32_t updates_ = 0;  // stamps rows, to find keys that one push repeats
  // Rows to write: a bit each, and their numbers while they are few.
  std::vector<uint64_t> dirty_bits_;
  std::vector<uint32_t> dirty_rows_;
  bool many_dirty_ = false;
};

}  // namespace cairn
