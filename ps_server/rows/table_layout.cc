#include "ps_server/rows/table_layout.h"

#include <algorithm>

#include "absl/types/span.h"

namespace cairn {

void TableLayout::InitialPart(size_t part, int64_t key, float* to) const {
  if (part == 0) {
    InitializeRow(initializer, table_hash, key, absl::MakeSpan(to, dim));
  } else {
    std::fill_n(to, dim, slot_initial[part - 1]);
  }
  row.RoundTrip(part, to);
}

void TableLayout::InitialRow(int64_t key, float* expanded, std::byte* numbers) const {
  float* floats = row.plain() ? reinterpret_cast<float*>(numbers) : expanded;
  InitializeRow(initializer, table_hash, key, absl::MakeSpan(floats, dim));
  for (const float initial : slot_initial) {
    floats += dim;
    std::fill_n(floats, dim, initial);
  }
  if (!row.plain()) row.Round(expanded, numbers);
}

}  // namespace cairn
