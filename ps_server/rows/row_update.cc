#include "ps_server/rows/row_update.h"

#include <algorithm>

#include "common/hash.h"
#include "ps_server/rows/copy_floats.h"

namespace cairn {
namespace {

// Rows updated at a time: their gradients fit into the first-level cache. Of wide rows, fewer: a
// thread keeps this memory, which is not charged. At least one.
constexpr size_t kApplyRows = 128;
constexpr size_t kApplyFloats = 128 << 10;

size_t RowsAtATime(size_t rows, size_t dim) {
  return std::min({kApplyRows, rows, std::max<size_t>(1, kApplyFloats / dim)});
}

// The memory that one push has used is there for the next.
template <typename Vector>
void GrowTo(Vector& vector, size_t size) {
  if (vector.size() < size) vector.resize(size);
}

}  // namespace

RowUpdate::RowUpdate(const UpdateStep& step, const TableLayout& layout, size_t rows, bool repeats,
                     TableScratch& scratch)
    : step_(step),
      dim_(layout.dim),
      row_(layout.row),
      most_(RowsAtATime(rows, dim_)),
      scratch_(scratch) {
  GrowTo(scratch.gradients, most_ * dim_);
  GrowTo(scratch.pointers, most_);
  if (!row_.plain()) {
    GrowTo(scratch.expanded, most_ * row_.floats());
    GrowTo(scratch.compact, most_);
  }
  if (repeats) GrowTo(scratch.ordered, rows);
}

void RowUpdate::Add(const TableLayout& layout, RowTable& table, uint64_t draws,
                    absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions,
                    bool repeats, const float* gradients) {
  if (layout_ != &layout) End();
  layout_ = &layout;
  if (repeats) {
    AddSummed(table, draws, rows, positions, gradients);
    return;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == RowTable::kNone) continue;
    CopyFloats(gradients + positions[i] * dim_, dim_, NextGradient());
    AddRow(table, draws, rows[i]);
  }
}

void RowUpdate::AddSummed(RowTable& table, uint64_t draws, absl::Span<const uint32_t> rows,
                          absl::Span<const uint32_t> positions, const float* gradients) {
  size_t present = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] != RowTable::kNone) scratch_.ordered[present++] = uint64_t{rows[i]} << 32 | i;
  }
  const absl::Span<uint64_t> ordered = absl::MakeSpan(scratch_.ordered.data(), present);
  std::ranges::sort(ordered);
  for (size_t i = 0; i < present;) {
    const uint64_t row = ordered[i] >> 32;
    float* const sum = NextGradient();
    std::fill_n(sum, dim_, 0.0f);
    for (; i < present && ordered[i] >> 32 == row; ++i) {
      const float* gradient = gradients + positions[ordered[i] & UINT32_MAX] * dim_;
      for (size_t d = 0; d < dim_; ++d) sum[d] += gradient[d];
    }
    AddRow(table, draws, static_cast<uint32_t>(row));
  }
}

void RowUpdate::AddRow(RowTable& table, uint64_t draws, uint32_t row) {
  if (row_.plain()) {
    scratch_.pointers[count_++] = table.floats(row);
    return;
  }
  TableScratch::Compact& compact = scratch_.compact[count_];
  compact.numbers = table.numbers(row);
  compact.draws = MixBits(draws ^ static_cast<uint64_t>(table.key(row)));
  float* const expanded = scratch_.expanded.data() + count_ * row_.floats();
  row_.Expand(compact.numbers, expanded);
  scratch_.pointers[count_++] = expanded;
}

void RowUpdate::End() {
  if (count_ == 0) return;
  layout_->optimizer->ApplyRows(step_, absl::MakeSpan(scratch_.pointers.data(), count_), dim_,
                                scratch_.gradients.data());
  for (size_t i = 0; !row_.plain() && i < count_; ++i) {
    row_.RoundAtRandom(scratch_.pointers[i], scratch_.compact[i].draws,
                       scratch_.compact[i].numbers);
  }
  count_ = 0;
}

}  // namespace cairn
