// One worker's metrics for Prometheus. The names are public, as a server's are.
#pragma once

#include "common/metrics/families.h"
#include "worker/trainer/reports/run_meter.h"

namespace cairn {

void AddWorkerMetrics(const RunStatistics& run, Families& families);

}  // namespace cairn
