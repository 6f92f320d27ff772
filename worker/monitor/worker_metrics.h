// What Prometheus is told of one worker. The names are public, as those of a server.
#pragma once

#include "common/metrics/families.h"
#include "worker/trainer/reports/run_meter.h"

namespace cairn {

void AddWorkerMetrics(const RunFigures& run, Families& families);

}  // namespace cairn
