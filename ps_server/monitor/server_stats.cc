#include "ps_server/monitor/server_stats.h"

#include "absl/time/time.h"

namespace cairn {
namespace {

using Engine = EngineStatistics;
using Net = ListenerStatistics;
using Job = JobStatistics;

constexpr StatKind kCounter = StatKind::kCounter;
constexpr StatKind kGauge = StatKind::kGauge;
constexpr bool kOnPage = true;

double Number(int64_t count) { return static_cast<double>(count); }

constexpr ServerStat<Engine> kEngineStats[] = {
    {"lease_seconds", kGauge, "seconds", "How long a worker's lease lasts after its last call.",
     [](const Engine& e) { return absl::ToDoubleSeconds(e.lease); }, kOnPage},
    {"rpcs_in_flight", kGauge, "calls", "Calls that run or wait now.",
     [](const Engine& e) { return Number(e.rpcs_running); }},
    {"memory_used_bytes", kGauge, "bytes",
     "Memory of variables and messages, charged to the budget.",
     [](const Engine& e) { return Number(e.memory_used_bytes); }, kOnPage},
    {"memory_budget_bytes", kGauge, "bytes", "The memory budget (--memory_budget_bytes).",
     [](const Engine& e) { return Number(e.memory_budget_bytes); }, kOnPage},
    {"snapshot_age_seconds", kGauge, "seconds",
     "Time since the last snapshot, or since the start if there is none.",
     [](const Engine& e) { return absl::ToDoubleSeconds(e.EpochAge()); }},
    {"store_failed", kGauge, "0 or 1", "1: the server cannot write to its disk and rejects pushes.",
     [](const Engine& e) { return e.failure.ok() ? 0.0 : 1.0; }},
    {"disk_bytes", kGauge, "bytes", "Size of the files in the server's directory.",
     [](const Engine& e) { return Number(e.disk_bytes); }, kOnPage},
    {"jobs", kGauge, "jobs", "Jobs kept here.",
     [](const Engine& e) { return Number(static_cast<int64_t>(e.jobs.size())); }},
};

constexpr ServerStat<Net> kListenerStats[] = {
    {"connections", kGauge, "connections", "Open connections.",
     [](const Net& n) { return Number(n.connections); }, kOnPage},
    {"connections_accepted_total", kCounter, "connections", "Connections accepted.",
     [](const Net& n) { return Number(n.accepted); }},
    {"connections_refused_total", kCounter, "connections",
     "Connections refused because too many were open or no memory was left.",
     [](const Net& n) { return Number(n.refused); }},
    {"queued_calls", kGauge, "calls", "Calls that have arrived and wait for a thread.",
     [](const Net& n) { return Number(n.queued_calls); }},
    {"busy_threads", kGauge, "threads", "Threads that serve a call which does not wait.",
     [](const Net& n) { return Number(n.busy_threads); }},
    {"call_threads", kGauge, "threads",
     "Threads for calls: busy ones, those whose call waits, and idle ones.",
     [](const Net& n) { return Number(n.threads); }},
    {"calls_refused_busy_total", kCounter, "calls",
     "Calls refused because too many waited; the reply says when to retry.",
     [](const Net& n) { return Number(n.refused_calls); }},
    {"received_bytes_total", kCounter, "bytes", "Bytes of requests that were read completely.",
     [](const Net& n) { return Number(n.received_bytes); }},
    {"sent_bytes_total", kCounter, "bytes", "Bytes of replies that were sent.",
     [](const Net& n) { return Number(n.sent_bytes); }},
};

constexpr ServerStat<Job> kJobStats[] = {
    {"variables", kGauge, "variables", "Variables.",
     [](const Job& j) { return Number(j.variables); }, kOnPage},
    {"rows", kGauge, "rows", "Rows of dense and embedding shards here.",
     [](const Job& j) { return Number(j.rows); }, kOnPage},
    {"rows_in_memory", kGauge, "rows", "Rows that are in memory; all others are only on disk.",
     [](const Job& j) { return Number(j.rows_in_memory); }},
    {"variable_memory_bytes", kGauge, "bytes", "Memory of values, slots and metadata of rows.",
     [](const Job& j) { return Number(j.memory_bytes); }},
    {"dirty_stripes", kGauge, "stripes", "Stripes that the next snapshot writes.",
     [](const Job& j) { return Number(j.dirty_stripes); }},
    {"durable_lag_pushes", kGauge, "pushes", "Pushes applied and not durable yet.",
     [](const Job& j) { return Number(j.DurableLag()); }, kOnPage},
};

}  // namespace

absl::Span<const ServerStat<EngineStatistics>> EngineStats() { return kEngineStats; }
absl::Span<const ServerStat<ListenerStatistics>> ListenerStats() { return kListenerStats; }
absl::Span<const ServerStat<JobStatistics>> JobStats() { return kJobStats; }

}  // namespace cairn
