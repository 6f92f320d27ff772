#include "worker/monitor/worker_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "common/log.h"
#include "common/metrics/families.h"
#include "common/status.h"

namespace cairn {
namespace {

// The client's buckets as a Prometheus histogram; their bounds are among kStalenessBounds.
Histogram::Reading ReadingOf(const StalenessSummary& staleness) {
  Histogram::Reading reading{.bounds = kStalenessBounds};
  reading.counts.resize(reading.bounds.size() + 1);
  for (const StalenessSummary::Bucket& bucket : staleness.histogram) {
    const auto bound = std::lower_bound(reading.bounds.begin(), reading.bounds.end(),
                                        static_cast<double>(bucket.up_to));
    reading.counts[static_cast<size_t>(bound - reading.bounds.begin())] += bucket.pushes;
    reading.count += bucket.pushes;
  }
  reading.sum = staleness.mean * static_cast<double>(reading.count);
  return reading;
}

void AddTraffic(const ClientCounters& counters, Families& families) {
  const auto total = [&](const char* name, const char* help, int64_t value) {
    families.Counter(name, help, static_cast<double>(value));
  };
  total("cairn_worker_pushed_bytes_total", "Payload bytes of gradients and ids.",
        counters.bytes_pushed);
  total("cairn_worker_pulled_bytes_total", "Payload bytes of values.", counters.bytes_pulled);
  total("cairn_worker_retries_total", "Calls that were tried again.", counters.retries);
  total("cairn_worker_pushes_dropped_total", "Pushes dropped for NaN or infinity.",
        counters.pushes_dropped);
  total("cairn_worker_pushes_late_total", "Contributions whose step closed without them.",
        counters.pushes_late);
  total("cairn_worker_replayed_pushes_total", "Parts sent again to servers that were restarted.",
        counters.replayed_pushes);
  total("cairn_worker_replayed_bytes_total", "Payload bytes of the parts sent again.",
        counters.replayed_bytes);
  families.Counter("cairn_worker_replay_seconds_total", "Seconds spent sending parts again.",
                   counters.replay_seconds);
  families.Gauge("cairn_worker_retained_bytes",
                 "Pushes kept until servers have them durably, counted once a server.",
                 static_cast<double>(counters.retained_bytes));
}

void AddGpu(const GpuUsage& gpu, Families& families) {
  if (!gpu.used()) return;
  const auto total = [&](const char* name, const char* help, double value) {
    families.Counter(name, help, value);
  };
  total("cairn_worker_gpu_steps_total", "Steps computed on GPUs, of evaluations too.",
        static_cast<double>(gpu.steps));
  total("cairn_worker_gpu_measured_steps_total", "GPU steps whose times were measured.",
        static_cast<double>(gpu.measured_steps));
  total("cairn_worker_gpu_compute_seconds_total",
        "Time of measured steps from the first op to the last.", gpu.compute_seconds);
  total("cairn_worker_gpu_copy_seconds_total",
        "Time of measured steps' copies between host and device.", gpu.copy_seconds);
  families.Gauge("cairn_worker_gpu_memory_bytes", "Device memory that Cairn has allocated.",
                 static_cast<double>(gpu.memory_bytes));
}

}  // namespace

void AddWorkerMetrics(const RunStatistics& run, Families& families) {
  families.Gauge("cairn_worker_info", "1, with the task as a label.", 1,
                 {{"cairn_job", run.job}, {"task", run.task}});
  families.Counter("cairn_worker_steps_total", "Steps done since the process began to train.",
                   static_cast<double>(run.training.steps));
  families.Counter("cairn_worker_examples_total", "Rows of input trained on.",
                   static_cast<double>(run.training.examples));
  if (run.training.loss.has_value()) {
    families.Gauge("cairn_worker_loss", "Mean over the last 100 steps.", *run.training.loss);
  }
  families.Distribution("cairn_worker_step_duration_seconds",
                        "Steps, from one's end to the next one's.", run.step_seconds);
  families.Distribution("cairn_worker_exchange_duration_seconds",
                        "Round trips to the servers: a push and the next pull, waits included.",
                        run.exchange_seconds);
  families.Distribution("cairn_worker_staleness_updates",
                        "Updates by others between a shard's pull and its push.",
                        ReadingOf(run.staleness));
  AddTraffic(run.counters, families);
  AddGpu(run.gpu, families);
}

absl::StatusOr<std::unique_ptr<HttpServer>> StartWorkerMonitor(const HttpFlags& flags,
                                                               const RunMeter& meter) {
  if (!flags.port_file.empty()) unlink(flags.port_file.c_str());
  std::map<std::string, HttpPage> pages;
  pages["/healthz"] = [](absl::string_view) { return HttpReply{.body = "ok\n"}; };
  pages["/metrics"] = [&meter](absl::string_view) {
    Families families;
    AddWorkerMetrics(meter.Read(), families);
    AddProcessMetrics(families);
    return HttpReply{.content_type = std::string(kMetricsTextType),
                     .body = MetricsText(families.Take())};
  };
  ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> server,
                   HttpServer::Start(flags.server, std::move(pages)));
  LOG(INFO) << "metrics at http://" << server->address() << "/metrics";
  if (!flags.port_file.empty()) {
    RETURN_IF_ERROR(WriteAddressFile("http_port_file", flags.port_file, server->address()));
  }
  return server;
}

}  // namespace cairn
