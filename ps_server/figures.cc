#include "ps_server/figures.h"

#include <algorithm>
#include <memory>

#include "absl/time/clock.h"
#include "common/consistency.h"
#include "ps_server/server_core.h"

namespace cairn {
namespace {

JobFigures FiguresOf(const ServerCore& core, Job& job) {
  JobFigures figures{.name = job.name(), .consistency = ConsistencyText(job.cohort().settings())};
  const auto variables = job.variables();
  figures.variables = static_cast<int64_t>(variables->size());
  for (const auto& [name, variable] : *variables) {
    for (HostedShard* shard : variable->shards()) {
      figures.rows += shard->row_count();
      figures.memory_bytes += shard->memory_bytes();
      figures.dirty_stripes += shard->dirty().count();
    }
  }
  wire::ServerState state;
  job.steps().Fill(state);
  figures.closed_step = state.closed_step;
  job.cohort().FillWhy(figures.why);
  job.steps().FillWhy(figures.why);
  core.waits.List(job.name(), figures.why.waiting);
  std::sort(figures.why.waiting.begin(), figures.why.waiting.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return figures;
}

}  // namespace

int64_t JobFigures::DurableLag() const {
  int64_t lag = 0;
  for (const wire::WorkerStanding& worker : why.workers) {
    lag += std::max<int64_t>(0, worker.applied - worker.durable);
  }
  return lag;
}

EngineFigures FiguresOf(const ServerCore& core) {
  EngineFigures figures;
  figures.durability = std::string(DurabilityName(core.options.durability));
  figures.uptime_seconds = absl::ToDoubleSeconds(absl::Now() - core.started);
  figures.lease_seconds = absl::ToDoubleSeconds(core.options.lease);
  figures.failure = core.flusher.failure();
  figures.counters = core.counters.ByName();
  figures.counters["epochs"] = core.flusher.epochs();
  figures.memory_used_bytes = core.budget.used_bytes();
  figures.memory_budget_bytes = core.budget.limit_bytes();
  core.waits.Count(figures.waiting_calls);
  std::vector<std::shared_ptr<Job>> jobs = core.registry.jobs();
  std::sort(jobs.begin(), jobs.end(),
            [](const auto& a, const auto& b) { return a->name() < b->name(); });
  for (const std::shared_ptr<Job>& job : jobs) {
    figures.jobs.push_back(FiguresOf(core, *job));
    for (const wire::WaitingCall& call : figures.jobs.back().why.waiting) {
      // The board's are counted already.
      if (call.waits_for == "step" || call.waits_for == "contribution") {
        ++figures.waiting_calls[call.waits_for];
      }
    }
  }
  figures.rpcs = core.rpcs.Read();
  figures.rpcs_running = core.rpcs.running();
  figures.staleness = core.staleness.Read();
  figures.epoch_seconds = core.flusher.epoch_seconds();
  if (const auto since = core.flusher.SinceEpoch(); since.has_value()) {
    figures.seconds_since_epoch = absl::ToDoubleSeconds(*since);
  }
  figures.store = core.store->Figures();
  figures.disk_bytes = core.store->DiskBytes();
  return figures;
}

wire::Staleness StalenessOf(const ServerCore& core) {
  const Histogram::Reading reading = core.staleness.Read();
  wire::Staleness staleness;
  staleness.pushes = reading.count;
  staleness.mean = reading.mean();
  staleness.p99 = static_cast<int64_t>(reading.Quantile(0.99));
  staleness.max = static_cast<int64_t>(reading.max);
  return staleness;
}

}  // namespace cairn
