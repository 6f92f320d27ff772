// A worker's HTTP pages for operators: /metrics and /healthz. The names of metrics are public, as a
// server's are.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/http/http_flags.h"
#include "common/http/http_server.h"
#include "common/metrics/families.h"
#include "worker/trainer/reports/run_meter.h"

namespace cairn {

// One worker's metrics for Prometheus.
void AddWorkerMetrics(const RunStatistics& run, Families& families);

// Serves until the result is destroyed. `meter` outlives it. Errors as HttpServer::Start, and
// kUnavailable if the port file cannot be written.
absl::StatusOr<std::unique_ptr<HttpServer>> StartWorkerMonitor(const HttpFlags& flags,
                                                               const RunMeter& meter);

}  // namespace cairn
