#include "common/metrics/families.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>

#include "prometheus/text_serializer.h"

namespace cairn {
namespace {

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Virtual and resident size, in pages, from /proc/self/statm.
std::pair<double, double> MemoryPages() {
  std::ifstream statm("/proc/self/statm");
  double total = 0;
  double resident = 0;
  statm >> total >> resident;
  return {total, resident};
}

double OpenDescriptors() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    ++count;
  }
  return count - 1;  // without the descriptor of this listing
}

double Seconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Start of this process in seconds since the epoch: the boot time plus a number of clock ticks. Not
// the boot time of /proc/stat, which a unit with ProcSubset=pid does not see.
double StartTime() {
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text);
  // The second field, a name in parentheses, may contain spaces.
  std::istringstream rest(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string field;
  constexpr int kStartTimeAfterName = 20;
  for (int i = 0; i < kStartTimeAfterName; ++i) rest >> field;
  const double boot = Seconds(CLOCK_REALTIME) - Seconds(CLOCK_BOOTTIME);
  return boot + std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

prometheus::ClientMetric& Families::Add(absl::string_view name, absl::string_view help,
                                        prometheus::MetricType type, const MetricLabels& labels) {
  const auto [place, fresh] = places_.try_emplace(std::string(name), families_.size());
  if (fresh) families_.push_back({std::string(name), std::string(help), type, {}});
  prometheus::ClientMetric& metric = families_[place->second].metric.emplace_back();
  for (const auto& [key, value] : labels) metric.label.push_back({key, value});
  return metric;
}

void Families::Counter(absl::string_view name, absl::string_view help, double value,
                       const MetricLabels& labels) {
  Add(name, help, prometheus::MetricType::Counter, labels).counter.value = value;
}

void Families::Gauge(absl::string_view name, absl::string_view help, double value,
                     const MetricLabels& labels) {
  Add(name, help, prometheus::MetricType::Gauge, labels).gauge.value = value;
}

void Families::Distribution(absl::string_view name, absl::string_view help,
                            const Histogram::Reading& reading, const MetricLabels& labels) {
  prometheus::ClientMetric::Histogram& histogram =
      Add(name, help, prometheus::MetricType::Histogram, labels).histogram;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < reading.counts.size(); ++i) {
    cumulative += static_cast<uint64_t>(reading.counts[i]);
    const double bound =
        i < reading.bounds.size() ? reading.bounds[i] : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({cumulative, bound});
  }
  histogram.sample_count = cumulative;
  histogram.sample_sum = reading.sum;
}

void AddProcessMetrics(Families& families) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const auto [total, resident] = MemoryPages();
  const auto page_bytes = static_cast<double>(sysconf(_SC_PAGE_SIZE));
  static const double start_time = StartTime();
  families.Counter("process_cpu_seconds_total", "User and system CPU time.",
                   SecondsOf(usage.ru_utime) + SecondsOf(usage.ru_stime));
  families.Gauge("process_resident_memory_bytes", "Resident memory.", resident * page_bytes);
  families.Gauge("process_virtual_memory_bytes", "Virtual memory.", total * page_bytes);
  families.Gauge("process_open_fds", "Open file descriptors.", OpenDescriptors());
  families.Gauge("process_max_fds", "Maximum number of open file descriptors.",
                 static_cast<double>(files.rlim_cur));
  families.Gauge("process_start_time_seconds", "Start of the process since the Unix epoch.",
                 start_time);
  families.Gauge("cairn_build_info", "1, with the release as a label.", 1,
                 {{"version", CAIRN_VERSION}});
}

std::string MetricsText(const std::vector<prometheus::MetricFamily>& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace cairn
