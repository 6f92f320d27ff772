// The Prometheus metrics of one server. Their names are public: the dashboard and the rules in
// prometheus/ use them, and a test compares all three.
#pragma once

#include <vector>

#include "common/metrics/families.h"
#include "ps_server/core/statistics.h"
#include "ps_server/net/listener_options.h"

namespace cairn {

// Jobs with series of their own, in the order of their names. Further jobs are only counted, so
// that clients cannot create series without bound.
inline constexpr size_t kMaxJobsMeasured = 64;

void AddServerMetrics(const EngineStatistics& engine, const ListenerStatistics& listener,
                      Families& families);

}  // namespace cairn
