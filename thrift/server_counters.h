// The counters of a server in one table: `describe`, /metrics, /status.json and cairnctl are served
// from it. A new counter is a row here, and the line that counts.
#pragma once

#include "absl/strings/string_view.h"
#include "common/table_row.h"

namespace cairn {

// Counts events of all jobs since the server's start.
struct ServerCounter {
  absl::string_view name;    // in DescribeReply.counters and /status.json
  absl::string_view metric;  // Prometheus' name; empty: another metric has the number
  absl::string_view unit;    // of the count: "pushes"
  absl::string_view help;
  absl::string_view label;  // cairnctl's name for it; empty: `name`
};

inline constexpr ServerCounter kServerCounters[] = {
    {"pushes", "cairn_ps_pushes_total", "pushes", "Pushes answered OK, repeats included."},
    {"pulls", "cairn_ps_pulls_total", "pulls", "Pulls answered OK."},
    {"assigns", "cairn_ps_assigns_total", "assigns", "Assigns answered OK."},
    {"pushes_refused", "cairn_ps_pushes_refused_total", "pushes",
     "Pushes and assigns that failed for any reason."},
    {"pushes_repeated", "cairn_ps_pushes_repeated_total", "pushes",
     "Pushes acknowledged but not applied, because they had been applied before."},
    {"pushes_reordered", "cairn_ps_pushes_reordered_total", "pushes",
     "Pushes answered with a request to replay earlier ones."},
    {"fenced", "cairn_ps_fenced_calls_total", "calls", "Calls of incarnations that have ended."},
    {"not_finite", "cairn_ps_not_finite_pushes_total", "pushes",
     "Pushes with NaN or infinity, rejected or skipped."},
    {"rows_made", "cairn_ps_rows_made_total", "rows", "Embedding rows created."},
    {"steps", "cairn_ps_sync_steps_total", "steps", "Synchronous steps closed."},
    {"contributions_dropped", "cairn_ps_contributions_dropped_total", "contributions",
     "Contributions whose step had closed without them."},
    {"contributions_lost", "cairn_ps_contributions_lost_total", "contributions",
     "Contributions that count for a step which closed here without them."},
    // cairn_ps_snapshot_duration_seconds_count counts only successful ones.
    {"epochs", "", "snapshots", "Snapshots.", "snapshots"},
};

using Counter = TableRow<kServerCounters>;

}  // namespace cairn
