#include "ps_server/monitor/ps_metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/monitor/server_stats.h"
#include "ps_server/rows/row_counts.h"
#include "thrift/job_state.h"
#include "thrift/server_counters.h"

namespace cairn {
namespace {

// The values of WaitingCall.waits_for.
constexpr const char* kWaits[] = {"step",   "order",      "epoch", "memory",
                                  "create", "checkpoint", "move",  "contribution"};
// The values of WorkerStanding.state.
constexpr const char* kStates[] = {"live",      "finished", "left",    "lost",
                                   "returning", "joining",  "expected"};

// The help text of a metric, with its unit.
template <typename Statistic>
std::string HelpOf(const Statistic& statistic) {
  return absl::StrCat(statistic.help, " Unit: ", statistic.unit, ".");
}

template <typename Reading>
void AddStats(absl::Span<const ServerStat<Reading>> stats, const Reading& reading,
              const MetricLabels& labels, Families& families) {
  for (const ServerStat<Reading>& stat : stats) {
    const std::string name = absl::StrCat("cairn_ps_", stat.name);
    if (stat.kind == StatKind::kCounter) {
      families.Counter(name, HelpOf(stat), stat.read(reading), labels);
    } else {
      families.Gauge(name, HelpOf(stat), stat.read(reading), labels);
    }
  }
}

void AddCalls(const EngineStatistics& engine, Families& families) {
  for (const RpcStatistics& rpc : engine.rpcs) {
    families.Distribution(
        "cairn_ps_rpc_duration_seconds",
        "Time from the end of reading the request until the reply is built, waits included.",
        rpc.seconds,
        {{"method", std::string(rpc.method)},
         {"outcome", absl::AsciiStrToLower(CodeName(rpc.outcome))}});
  }
  for (const char* kind : kWaits) {
    const auto found = engine.waiting_calls.find(kind);
    families.Gauge("cairn_ps_waiting_calls", "Calls that wait now, by what they wait for.",
                   found == engine.waiting_calls.end() ? 0 : static_cast<double>(found->second),
                   {{"waits_for", absl::string_view(kind) == "epoch" ? "snapshot" : kind}});
  }
  for (const ServerCounter& counter : kServerCounters) {
    const auto found = engine.counters.find(std::string(counter.name));
    if (counter.metric.empty() || found == engine.counters.end()) continue;
    families.Counter(counter.metric, HelpOf(counter), static_cast<double>(found->second));
  }
}

void AddStore(const EngineStatistics& engine, Families& families) {
  families.Distribution("cairn_ps_snapshot_duration_seconds",
                        "Duration of snapshots that succeeded.", engine.epoch_seconds);
  for (const StoreStatistic& statistic : engine.store) {
    const std::string name = absl::StrCat("cairn_ps_", statistic.name);
    if (absl::EndsWith(name, "_total")) {
      families.Counter(name, statistic.help, statistic.value);
    } else {
      families.Gauge(name, statistic.help, statistic.value);
    }
  }
}

void AddWorkers(const JobStatistics& job, const MetricLabels& label, Families& families) {
  std::map<std::string, int64_t> states;
  double missing = 0;
  double silence = 0;
  int64_t first = 0;
  int64_t last = 0;
  bool any = false;
  for (const wire::WorkerStanding& worker : job.workers) {
    ++states[worker.state];
    missing += IsMissing(worker) ? 1 : 0;
    if (!IsExpectedToCall(worker)) continue;
    silence = std::max(silence, worker.seconds_since_seen);
    if (worker.state != "live") continue;
    first = any ? std::min(first, worker.step) : worker.step;
    last = std::max(last, worker.step);
    any = true;
  }
  for (const char* state : kStates) {
    families.Gauge("cairn_ps_workers", "Workers known here, by state.",
                   static_cast<double>(states[state]), {label.front(), {"state", state}});
  }
  families.Gauge("cairn_ps_workers_missing",
                 "Workers that are lost, or that are silent although they take steps.", missing,
                 label);
  families.Gauge("cairn_ps_worker_silence_seconds",
                 "Time since the last call of the worker that has been silent longest, of those "
                 "that should call.",
                 silence, label);
  families.Gauge("cairn_ps_worker_step_last", "Highest step of a live worker.",
                 static_cast<double>(last), label);
  families.Gauge("cairn_ps_worker_step_first", "Lowest step of a live worker.",
                 static_cast<double>(first), label);
  if (const std::optional<double> loss = MeanLoss(job.workers); loss.has_value()) {
    families.Gauge("cairn_ps_training_loss", "Mean of the recent losses that live workers report.",
                   *loss, label);
  }
}

template <size_t n>
void AddRanges(const char* metric, const char* help, const JobStatistics& job,
               const std::array<int64_t, n>& least, const std::array<int64_t, n>& rows,
               Families& families) {
  for (size_t i = 0; i < n; ++i) {
    families.Gauge(metric, help, static_cast<double>(rows[i]),
                   {{"cairn_job", job.name}, {"least", absl::StrCat(least[i])}});
  }
}

void AddJob(const JobStatistics& job, Families& families) {
  // The label is not "job", which Prometheus uses for a group of targets.
  const MetricLabels label = {{"cairn_job", job.name}};
  AddStats(JobStats(), job, label, families);
  for (const RowCounter& count : kRowCounters) {
    families.Counter(count.metric, HelpOf(count), static_cast<double>(job.row_counts.*count.field),
                     label);
  }
  AddRanges("cairn_ps_rows_by_age",
            "Embedding rows in memory, estimated from a sample, by the number of updates of their "
            "bucket since the row's last one; label least is the lower bound.",
            job, RowCensus::kAges, job.census.by_age, families);
  AddRanges(
      "cairn_ps_rows_by_use",
      "Embedding rows in memory, estimated from a sample, by the rounds of eviction that they "
      "would stay without being used; label least is the lower bound.",
      job, RowCensus::kUses, job.census.by_use, families);
  AddWorkers(job, label, families);
}

}  // namespace

void AddServerMetrics(const EngineStatistics& engine, const ListenerStatistics& listener,
                      Families& families) {
  families.Gauge("cairn_ps_info", "1, with the durability as a label.", 1,
                 {{"durability", engine.durability}});
  AddStats(EngineStats(), engine, {}, families);
  AddStats(ListenerStats(), listener, {}, families);
  AddCalls(engine, families);
  families.Distribution("cairn_ps_staleness_updates",
                        "Updates by others between a shard's pull and its push.", engine.staleness);
  AddStore(engine, families);
  const size_t measured = std::min(engine.jobs.size(), kMaxJobsMeasured);
  for (size_t i = 0; i < measured; ++i) AddJob(engine.jobs[i], families);
}

}  // namespace cairn
