// Counts of what happened to a table's rows. `describe` and /metrics are served from this table. A
// new count is a field of wire::RowFigures, a row here, and the line that counts.
#pragma once

#include "common/table_row.h"
#include "ps_server/base/counters.h"
#include "thrift/cairn_types.h"

namespace cairn {

struct RowCounter {
  absl::string_view name;
  int64_t wire::RowFigures::*field;
  absl::string_view metric;
  absl::string_view unit;  // of the count: "rows"
  absl::string_view help;
};

inline constexpr RowCounter kRowCounters[] = {
    {"found", &wire::RowFigures::found, "cairn_ps_row_hits_total", "keys",
     "Keys of pulls and pushes whose row was in memory."},
    {"loaded", &wire::RowFigures::loaded, "cairn_ps_row_loads_total", "rows",
     "Rows that were read from the disk for a key."},
    {"evicted", &wire::RowFigures::evicted, "cairn_ps_row_evictions_total", "rows",
     "Rows that were evicted from memory to the disk."},
    {"absent", &wire::RowFigures::absent, "cairn_ps_row_absences_total", "keys",
     "Keys of pulls and pushes that had no row."},
    {"not_admitted", &wire::RowFigures::not_admitted, "cairn_ps_row_pushes_not_admitted_total",
     "keys", "Keys of pushes that had no row and were not admitted."},
    {"expired", &wire::RowFigures::expired, "cairn_ps_rows_expired_total", "rows",
     "Rows deleted for their age."},
    {"crowded_out", &wire::RowFigures::crowded_out, "cairn_ps_rows_crowded_out_total", "rows",
     "Rows deleted for their table's size."},
};

using RowCounts = TableCounters<kRowCounters>;

// Adds the counts to `sums`.
inline void AddCounts(const RowCounts& counts, wire::RowFigures& sums) {
  for (size_t i = 0; i < RowCounts::Row::kCount; ++i) {
    const auto row = RowCounts::Row::At(i);
    sums.*(row->field) += counts.Get(row);
  }
}

}  // namespace cairn
