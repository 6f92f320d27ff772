#include "ps_server/rows/row_update.h"

#include <algorithm>

#include "common/hash.h"
#include "ps_server/rows/copy_floats.h"

namespace cairn {
namespace {

// Rows updated at a time: their gradients fit into the first-level cache.
constexpr size_t kApplyRows = 128;

}  // namespace

void RowUpdate::Apply(absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions,
                      bool repeats, const float* gradients) {
  scratch_.gradients.resize(kApplyRows * layout_.dim);
  scratch_.pointers.resize(kApplyRows);
  scratch_.updated.resize(kApplyRows);
  if (!layout_.row.plain()) {
    scratch_.expanded.resize(std::min(kApplyRows, rows.size()) * layout_.row.floats());
  }
  if (repeats) {
    ApplySummed(rows, positions, gradients);
  } else {
    ApplyOnce(rows, positions, gradients);
  }
}

void RowUpdate::Update(size_t count) {
  const size_t dim = layout_.dim;
  const absl::Span<float* const> pointers = absl::MakeSpan(scratch_.pointers.data(), count);
  if (layout_.row.plain()) {
    for (size_t i = 0; i < count; ++i) scratch_.pointers[i] = table_.floats(scratch_.updated[i]);
    layout_.optimizer->ApplyRows(step_, pointers, dim, scratch_.gradients.data());
    return;
  }
  const size_t width = layout_.row.floats();
  for (size_t i = 0; i < count; ++i) {
    scratch_.pointers[i] = scratch_.expanded.data() + i * width;
    layout_.row.Expand(table_.numbers(scratch_.updated[i]), scratch_.pointers[i]);
  }
  layout_.optimizer->ApplyRows(step_, pointers, dim, scratch_.gradients.data());
  for (size_t i = 0; i < count; ++i) {
    const uint32_t row = scratch_.updated[i];
    layout_.row.RoundAtRandom(pointers[i], MixBits(draws_ ^ static_cast<uint64_t>(table_.key(row))),
                              table_.numbers(row));
  }
}

void RowUpdate::ApplyOnce(absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions,
                          const float* gradients) {
  const size_t dim = layout_.dim;
  for (size_t base = 0; base < rows.size(); base += kApplyRows) {
    const size_t n = std::min(kApplyRows, rows.size() - base);
    for (size_t i = 0; i < n; ++i) {
      scratch_.updated[i] = rows[base + i];
      CopyFloats(gradients + positions[base + i] * dim, dim, scratch_.gradients.data() + i * dim);
    }
    Update(n);
  }
}

void RowUpdate::ApplySummed(absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions,
                            const float* gradients) {
  const size_t dim = layout_.dim;
  scratch_.ordered.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) scratch_.ordered[i] = uint64_t{rows[i]} << 32 | i;
  std::ranges::sort(scratch_.ordered);
  size_t n = 0;
  for (size_t i = 0; i < scratch_.ordered.size();) {
    const uint64_t row = scratch_.ordered[i] >> 32;
    float* sum = scratch_.gradients.data() + n * dim;
    std::fill_n(sum, dim, 0.0f);
    for (; i < scratch_.ordered.size() && scratch_.ordered[i] >> 32 == row; ++i) {
      const float* gradient = gradients + positions[scratch_.ordered[i] & UINT32_MAX] * dim;
      for (size_t d = 0; d < dim; ++d) sum[d] += gradient[d];
    }
    scratch_.updated[n++] = static_cast<uint32_t>(row);
    if (n < kApplyRows && i < scratch_.ordered.size()) continue;
    Update(n);
    n = 0;
  }
}

GatheredUpdate::GatheredUpdate(const UpdateStep& step, size_t dim, TableScratch& scratch)
    : step_(step), dim_(dim), scratch_(scratch) {
  scratch_.gradients.resize(kApplyRows * dim);
  scratch_.pointers.resize(kApplyRows);
}

void GatheredUpdate::Add(const TableLayout& layout, RowTable& table,
                         absl::Span<const uint32_t> rows, absl::Span<const uint32_t> positions,
                         const float* gradients) {
  if (layout_ != &layout) End();
  layout_ = &layout;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == RowTable::kNone) continue;
    if (count_ == kApplyRows) End();
    scratch_.pointers[count_] = table.floats(rows[i]);
    CopyFloats(gradients + positions[i] * dim_, dim_, scratch_.gradients.data() + count_ * dim_);
    ++count_;
  }
}

void GatheredUpdate::End() {
  if (count_ == 0) return;
  layout_->optimizer->ApplyRows(step_, absl::MakeSpan(scratch_.pointers.data(), count_), dim_,
                                scratch_.gradients.data());
  count_ = 0;
}

}  // namespace cairn
