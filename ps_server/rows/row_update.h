// Applies gradients to rows of a table by its optimizer.
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
  std::vector<float> gradients;
  std::vector<float*> pointers;
  std::vector<uint32_t> updated;             // rows, for one call of the optimizer
  std::vector<float> expanded;               // numbers of these rows as floats
  std::vector<uint32_t> admitted;            // rows
  std::vector<uint32_t> admitted_positions;  // positions of their gradients
  struct Absent {
    uint32_t group = 0;  // index within a window
    uint32_t at = 0;     // index among the keys
  };
  std::vector<Absent> absent;  // keys without a row
};

// One update of rows of one table. Thread safety: none.
class RowUpdate {
 public:
  // `draws`: seed of the random rounding of compact rows. All arguments must outlive this object.
  RowUpdate(const TableLayout& layout, RowTable& table, const UpdateStep& step, uint64_t draws,
            TableScratch& scratch)
      : layout_(layout), table_(table), step_(step), draws_(draws), scratch_(scratch) {}

  // Updates each row once. The gradient of rows[i] is at gradients + positions[i] * dim. `repeats`:
  // `rows` may contain a row several times; its gradients are summed in order.
  void Apply(absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions, bool repeats,
             const float* gradients);

 private:
  void ApplyOnce(absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions,
                 const float* gradients);
  void ApplySummed(absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions,
                   const float* gradients);
  // Updates the first `count` rows of scratch.updated, each with its gradient.
  void Update(size_t count);

  const TableLayout& layout_;
  RowTable& table_;
  const UpdateStep& step_;
  const uint64_t draws_;
  TableScratch& scratch_;
};

// Collects updates of rows of several tables, so that one call of the optimizer applies many of
// them: a call costs as much as several rows. The rows must be plain, and none may occur twice.
// Call End before `scratch` is used otherwise.
// Thread safety: none.
class GatheredUpdate {
 public:
  // `dim` of every row. `step` and `scratch` must outlive this object. Only this constructor throws
  // (std::bad_alloc).
  GatheredUpdate(const UpdateStep& step, size_t dim, TableScratch& scratch);

  // The gradient of rows[i] is at gradients + positions[i] * dim; rows that are RowTable::kNone are
  // left out. `layout` and `table` must outlive End.
  void Add(const TableLayout& layout, RowTable& table, absl::Span<const uint32_t> rows,
           absl::Span<const uint32_t> positions, const float* gradients);
  // Updates the added rows.
  void End();

 private:
  const UpdateStep& step_;
  const size_t dim_;
  TableScratch& scratch_;
  const TableLayout* layout_ = nullptr;  // of the rows that are not updated yet
  size_t count_ = 0;
};

}  // namespace cairn
