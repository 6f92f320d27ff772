// Tables of the statistics of a server, from which /metrics and /status.json are served.
// Counters of events are in thrift/server_counters.h and ps_server/rows/row_counts.h.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps_server/core/statistics.h"
#include "ps_server/net/listener_options.h"

namespace cairn {

enum class StatKind { kCounter, kGauge };

// One number of `Reading`.
template <typename Reading>
struct ServerStat {
  // The metric's name without "cairn_ps_". Ends in the unit if that is bytes or seconds.
  absl::string_view name;
  StatKind kind;
  absl::string_view unit;  // "bytes", "rows"; /metrics adds it to the help
  absl::string_view help;
  double (*read)(const Reading&);
  bool on_page = false;  // /status.json has it too, under `name`
};

absl::Span<const ServerStat<EngineStatistics>> EngineStats();
absl::Span<const ServerStat<ListenerStatistics>> ListenerStats();
absl::Span<const ServerStat<JobStatistics>> JobStats();  // with a label for the job

}  // namespace cairn
