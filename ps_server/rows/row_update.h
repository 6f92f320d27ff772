// Applies gradients to rows of tables by their optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/optimizer/optimizer.h"
#include "ps_server/rows/row_table.h"
#include "ps_server/rows/table_layout.h"

namespace cairn {

// Reused from one request to the next. Thread safety: none.
struct TableScratch {
  std::vector<uint32_t> rows;
  std::vector<uint64_t> ordered;
  // For one call of the optimizer:
  std::vector<float> gradients;
  std::vector<float*> pointers;
  std::vector<float> expanded;  // the numbers of compact rows as floats
  struct Compact {
    std::byte* numbers = nullptr;
    uint64_t draws = 0;  // as RowLayout::RoundAtRandom
  };
  std::vector<Compact> compact;
  struct Absent {
    uint32_t group = 0;  // index within a window
    uint32_t at = 0;     // index among the keys
  };
  std::vector<Absent> absent;  // keys without a row
};

// One update of rows of several tables. One call of the optimizer applies many rows, because a call
// costs as much as several rows. Call End before `scratch` is used otherwise.
// Thread safety: none.
class RowUpdate {
 public:
  // `layout`: its dim and row are those of all tables. `rows`: at least the rows of each Add.
  // `repeats`: of any Add. `step`, `layout` and `scratch` must outlive this object. Only this
  // constructor throws (std::bad_alloc).
  RowUpdate(const UpdateStep& step, const TableLayout& layout, size_t rows, bool repeats,
            TableScratch& scratch);

  // Adds an update of each row. The gradient of rows[i] is at gradients + positions[i] * dim; rows
  // that are RowTable::kNone are left out. `repeats`: `rows` may contain a row several times; its
  // gradients are summed in order. `draws`: seed of the random rounding of compact rows. `layout`
  // and `table` must outlive End.
  void Add(const TableLayout& layout, RowTable& table, uint64_t draws,
           absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions, bool repeats,
           const float* gradients);
  // Updates the added rows.
  void End();

 private:
  void AddSummed(RowTable& table, uint64_t draws, absl::Span<const uint32_t> rows,
                 absl::Span<const uint32_t> positions, const float* gradients);
  // The place for the gradient of the next row.
  float* NextGradient() {
    if (count_ == most_) End();
    return scratch_.gradients.data() + count_ * dim_;
  }
  void AddRow(RowTable& table, uint64_t draws, uint32_t row);

  const UpdateStep& step_;
  const size_t dim_;
  const RowLayout& row_;
  const size_t most_;  // rows for one call of the optimizer
  TableScratch& scratch_;
  const TableLayout* layout_ = nullptr;  // of the rows that are not updated yet
  size_t count_ = 0;
};

}  // namespace cairn
