// Collects samples into Prometheus' metric families and writes them as text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/metrics/slotted.h"
#include "prometheus/metric_family.h"

namespace cairn {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Keeps samples of one name together, in the order of first mention, as the text format requires.
// Thread safety: none.
class Families {
 public:
  // `name` ends in _total for a counter, preceded by the base unit if the metric has one.
  void Counter(absl::string_view name, absl::string_view help, double value,
               const MetricLabels& labels = {});
  void Gauge(absl::string_view name, absl::string_view help, double value,
             const MetricLabels& labels = {});
  void Distribution(absl::string_view name, absl::string_view help,
                    const Histogram::Reading& reading, const MetricLabels& labels = {});
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Add(absl::string_view name, absl::string_view help,
                                prometheus::MetricType type, const MetricLabels& labels);

  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string, size_t, std::less<>> places_;
};

// Metrics of this process under the names that Prometheus' own client libraries use:
// process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes,
// process_open_fds, process_max_fds, process_start_time_seconds. Also cairn_build_info.
void AddProcessMetrics(Families& families);

// Text format 0.0.4 and its media type.
std::string MetricsText(const std::vector<prometheus::MetricFamily>& families);
inline constexpr absl::string_view kMetricsTextType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace cairn
