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
#include "thrift/job_state.h"

namespace cairn {
namespace {

struct CounterText {
  const char* counter;
  const char* metric;
  const char* help;
};

constexpr CounterText kCounters[] = {
    {"pushes", "cairn_ps_pushes_total", "Pushes answered OK, repeats included."},
    {"pulls", "cairn_ps_pulls_total", "Pulls answered OK."},
    {"assigns", "cairn_ps_assigns_total", "Assigns answered OK."},
    {"pushes_refused", "cairn_ps_pushes_refused_total",
     "Pushes and assigns that failed for any reason."},
    {"pushes_repeated", "cairn_ps_pushes_repeated_total",
     "Pushes acknowledged and not applied, for they were in."},
    {"pushes_reordered", "cairn_ps_pushes_reordered_total",
     "Pushes answered with a request to replay earlier ones."},
    {"fenced", "cairn_ps_fenced_calls_total", "Calls of incarnations that are over."},
    {"not_finite", "cairn_ps_not_finite_pushes_total", "Pushes with NaN or infinity."},
    {"rows_made", "cairn_ps_rows_made_total", "Embedding rows made."},
    {"steps", "cairn_ps_sync_steps_total", "Synchronous steps closed."},
    {"contributions_dropped", "cairn_ps_contributions_dropped_total",
     "Contributions whose step had closed without them."},
    {"contributions_lost", "cairn_ps_contributions_lost_total",
     "Contributions that count for a step which closed here without them."},
};

// WaitingCall.waits_for.
constexpr const char* kWaits[] = {"step",   "order",      "epoch",       "memory",
                                  "create", "checkpoint", "contribution"};
// WorkerStanding.state.
constexpr const char* kStates[] = {"live", "finished", "left", "lost", "returning", "joining"};

void AddCalls(const EngineFigures& engine, const ListenerFigures& listener, Families& families) {
  for (const RpcFigure& rpc : engine.rpcs) {
    families.Distribution(
        "cairn_ps_rpc_duration_seconds",
        "Calls, from the request's being read to the reply's being made, waits included.",
        rpc.seconds,
        {{"method", std::string(rpc.method)},
         {"outcome", absl::AsciiStrToLower(CodeName(rpc.outcome))}});
  }
  families.Gauge("cairn_ps_rpcs_in_flight", "Calls that run or wait now.",
                 static_cast<double>(engine.rpcs_running));
  for (const char* kind : kWaits) {
    const auto found = engine.waiting_calls.find(kind);
    families.Gauge("cairn_ps_waiting_calls", "Calls that wait now, by what they wait for.",
                   found == engine.waiting_calls.end() ? 0 : static_cast<double>(found->second),
                   {{"waits_for", absl::string_view(kind) == "epoch" ? "snapshot" : kind}});
  }
  families.Gauge("cairn_ps_connections", "Connections that are open.",
                 static_cast<double>(listener.connections));
  families.Counter("cairn_ps_connections_accepted_total", "Connections accepted.",
                   static_cast<double>(listener.accepted));
  families.Counter("cairn_ps_connections_refused_total", "Connections refused, being one too many.",
                   static_cast<double>(listener.refused));
  families.Gauge("cairn_ps_queued_calls", "Calls that have come and wait for a thread.",
                 static_cast<double>(listener.queued_calls));
  families.Gauge("cairn_ps_busy_threads", "Threads that serve a call which does not wait.",
                 static_cast<double>(listener.busy_threads));
  families.Gauge("cairn_ps_call_threads",
                 "Threads for calls: busy ones, those whose call waits, and idle ones.",
                 static_cast<double>(listener.threads));
  families.Counter("cairn_ps_calls_refused_busy_total",
                   "Calls refused because too many waited, and told when to come back.",
                   static_cast<double>(listener.refused_calls));
  families.Counter("cairn_ps_received_bytes_total", "Of requests that were read to their end.",
                   static_cast<double>(listener.received_bytes));
  families.Counter("cairn_ps_sent_bytes_total", "Of replies that were sent.",
                   static_cast<double>(listener.sent_bytes));
}

void AddStore(const EngineFigures& engine, Families& families) {
  families.Distribution("cairn_ps_snapshot_duration_seconds", "Time of snapshots that succeeded.",
                        engine.epoch_seconds);
  families.Gauge("cairn_ps_snapshot_age_seconds", "Since the last snapshot, else the start.",
                 absl::ToDoubleSeconds(engine.EpochAge()));
  families.Gauge("cairn_ps_store_failed", "1: it cannot write, and refuses pushes.",
                 engine.failure.ok() ? 0 : 1);
  families.Gauge("cairn_ps_disk_bytes", "Files in the server's folder.",
                 static_cast<double>(engine.disk_bytes));
  for (const StoreFigure& figure : engine.store) {
    const std::string name = absl::StrCat("cairn_ps_", figure.name);
    if (absl::EndsWith(name, "_total")) {
      families.Counter(name, figure.help, figure.value);
    } else {
      families.Gauge(name, figure.help, figure.value);
    }
  }
}

void AddWorkers(const JobFigures& job, const MetricLabels& label, Families& families) {
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
                 "Workers that are lost, or of which nothing is heard though they take steps.",
                 missing, label);
  families.Gauge("cairn_ps_worker_silence_seconds",
                 "Since the last call of the worker, of those that are there, not heard longest.",
                 silence, label);
  families.Gauge("cairn_ps_worker_step_last", "Step of the live worker that is furthest.",
                 static_cast<double>(last), label);
  families.Gauge("cairn_ps_worker_step_first", "Step of the live worker that is behind most.",
                 static_cast<double>(first), label);
  if (const std::optional<double> loss = MeanLoss(job.workers); loss.has_value()) {
    families.Gauge("cairn_ps_training_loss",
                   "Mean of the recent losses of the workers that are heard.", *loss, label);
  }
}

template <size_t n>
void AddRanges(const char* metric, const char* help, const JobFigures& job,
               const std::array<int64_t, n>& least, const std::array<int64_t, n>& rows,
               Families& families) {
  for (size_t i = 0; i < n; ++i) {
    families.Gauge(metric, help, static_cast<double>(rows[i]),
                   {{"cairn_job", job.name}, {"least", absl::StrCat(least[i])}});
  }
}

void AddJob(const JobFigures& job, Families& families) {
  // Not "job": that is Prometheus' own name for a group of targets.
  const MetricLabels label = {{"cairn_job", job.name}};
  families.Gauge("cairn_ps_variables", "Variables.", static_cast<double>(job.variables), label);
  families.Gauge("cairn_ps_rows", "Rows of dense and embedding shards here.",
                 static_cast<double>(job.rows), label);
  families.Gauge("cairn_ps_rows_in_memory", "Of them, those that are not on disk alone.",
                 static_cast<double>(job.rows_in_memory), label);
  families.Counter("cairn_ps_row_hits_total", "Keys of pulls and pushes whose row was in memory.",
                   static_cast<double>(job.row_hits), label);
  families.Counter("cairn_ps_row_loads_total", "Rows that were read from the disk for one.",
                   static_cast<double>(job.row_loads), label);
  families.Counter("cairn_ps_row_evictions_total", "Rows that left memory for the disk.",
                   static_cast<double>(job.row_evictions), label);
  families.Counter("cairn_ps_row_absences_total", "Keys of pulls and pushes that had no row.",
                   static_cast<double>(job.row_absences), label);
  families.Counter("cairn_ps_row_pushes_not_admitted_total",
                   "Of them, those of pushes that did not get one either.",
                   static_cast<double>(job.row_pushes_not_admitted), label);
  families.Counter("cairn_ps_rows_expired_total", "Rows deleted for their age.",
                   static_cast<double>(job.rows_expired), label);
  families.Counter("cairn_ps_rows_crowded_out_total", "Rows deleted for their table's size.",
                   static_cast<double>(job.rows_crowded_out), label);
  AddRanges("cairn_ps_rows_by_age",
            "Embedding rows in memory, by a sample: updates of their bucket since their last, from "
            "least on.",
            job, RowCensus::kAges, job.census.by_age, families);
  AddRanges(
      "cairn_ps_rows_by_use",
      "Embedding rows in memory, by a sample: rounds of eviction that they would stay without "
      "being used, from least on.",
      job, RowCensus::kUses, job.census.by_use, families);
  families.Gauge("cairn_ps_variable_memory_bytes", "Values, slots and metadata of rows.",
                 static_cast<double>(job.memory_bytes), label);
  families.Gauge("cairn_ps_dirty_stripes", "Stripes that the next snapshot writes.",
                 static_cast<double>(job.dirty_stripes), label);
  families.Gauge("cairn_ps_durable_lag_pushes", "Pushes applied and not durable yet.",
                 static_cast<double>(job.DurableLag()), label);
  AddWorkers(job, label, families);
}

}  // namespace

void AddServerMetrics(const EngineFigures& engine, const ListenerFigures& listener,
                      Families& families) {
  families.Gauge("cairn_ps_info", "1, with the durability as a label.", 1,
                 {{"durability", engine.durability}});
  families.Gauge("cairn_ps_lease_seconds", "How long a worker counts as there without a call.",
                 absl::ToDoubleSeconds(engine.lease));
  AddCalls(engine, listener, families);
  for (const CounterText& counter : kCounters) {
    const auto found = engine.counters.find(counter.counter);
    if (found == engine.counters.end()) continue;
    families.Counter(counter.metric, counter.help, static_cast<double>(found->second));
  }
  families.Gauge("cairn_ps_memory_used_bytes", "Of the budget: variables and messages.",
                 static_cast<double>(engine.memory_used_bytes));
  families.Gauge("cairn_ps_memory_budget_bytes", "The budget (--memory_budget_bytes).",
                 static_cast<double>(engine.memory_budget_bytes));
  families.Distribution("cairn_ps_staleness_updates",
                        "Updates by others between a shard's pull and its push.", engine.staleness);
  AddStore(engine, families);
  families.Gauge("cairn_ps_jobs", "Jobs kept here.", static_cast<double>(engine.jobs.size()));
  const size_t measured = std::min(engine.jobs.size(), kMostJobsMeasured);
  for (size_t i = 0; i < measured; ++i) AddJob(engine.jobs[i], families);
}

}  // namespace cairn
