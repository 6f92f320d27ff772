#include "ps_server/core/figures.h"

#include <algorithm>
#include <memory>

#include "common/consistency.h"
#include "common/deadline.h"
#include "ps_server/core/server_core.h"

namespace cairn {
namespace {

void AddVariables(Job& job, FigureDetail detail, JobFigures& figures) {
  const auto variables = job.variables();
  figures.variables = static_cast<int64_t>(variables->size());
  for (const auto& [name, variable] : *variables) {
    for (HostedShard* shard : variable->shards()) {
      figures.rows += shard->row_count();
      figures.memory_bytes += shard->memory_bytes();
      figures.rows_in_memory += shard->row_count();
    }
    const HostedTable* const table = variable->table();
    if (table == nullptr) continue;
    figures.rows_in_memory -= table->cold_rows();
    AddCounts(table->counts(), figures.row_counts);
    if (detail == FigureDetail::kMetrics) figures.census += table->census();
  }
}

void AddWaits(const ServerCore& core, Job& job, JobFigures& figures) {
  wire::WhyReply why;
  size_t waiting = job.cohort().FillWhy(why, kMostWaitsShown);
  waiting += job.steps().FillWhy(why, kMostWaitsShown);
  const size_t listed = why.waiting.size();
  core.waits.List(job.name(), why.waiting);
  figures.waiting_count = static_cast<int64_t>(waiting + why.waiting.size() - listed);
  figures.waiting = std::move(why.waiting);
  std::sort(figures.waiting.begin(), figures.waiting.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  figures.workers = std::move(why.workers);
}

JobFigures FiguresOf(const ServerCore& core, FigureDetail detail, Job& job) {
  JobFigures figures{.name = job.name(),
                     .consistency = ConsistencyText(job.cohort().settings()),
                     .since_checkpoint = job.SinceCheckpoint()};
  if (detail != FigureDetail::kSample) AddVariables(job, detail, figures);
  if (detail == FigureDetail::kMetrics) figures.dirty_stripes = DirtyStripesOf(job);
  if (detail == FigureDetail::kPage) {
    AddWaits(core, job, figures);
  } else {
    figures.workers = job.cohort().Standings();
  }
  return figures;
}

void CountWaits(const ServerCore& core, const std::vector<std::shared_ptr<Job>>& jobs,
                std::map<std::string, int64_t>& counts) {
  core.waits.Count(counts);
  for (const std::shared_ptr<Job>& job : jobs) {
    counts["step"] += static_cast<int64_t>(job->cohort().waiting());
    job->steps().CountWaits(counts);
  }
}

}  // namespace

int64_t JobFigures::DurableLag() const {
  int64_t lag = 0;
  for (const wire::WorkerStanding& worker : workers) {
    lag += std::max<int64_t>(0, worker.applied - worker.durable);
  }
  return lag;
}

absl::Duration UptimeOf(const ServerCore& core) { return MonotonicNow() - core.started; }

std::map<std::string, int64_t> CountersOf(const ServerCore& core) {
  std::map<std::string, int64_t> counters;
  for (size_t i = 0; i < Counter::kCount; ++i) {
    const Counter counter = Counter::At(i);
    counters.emplace(counter->name, counter == Counter("epochs") ? core.flusher.epochs()
                                                                 : core.counters.Get(counter));
  }
  return counters;
}

int64_t DirtyStripesOf(Job& job) {
  int64_t dirty = 0;
  const auto variables = job.variables();
  for (const auto& [name, variable] : *variables) {
    for (HostedShard* shard : variable->shards()) dirty += shard->dirty().count();
  }
  return dirty;
}

EngineFigures FiguresOf(const ServerCore& core, FigureDetail detail) {
  EngineFigures figures{.boot_id = core.boot_id,
                        .durability = std::string(DurabilityName(core.options.durability)),
                        .uptime = UptimeOf(core),
                        .lease = core.options.lease,
                        .failure = core.flusher.failure(),
                        .counters = CountersOf(core),
                        .memory_used_bytes = core.budget.used_bytes(),
                        .memory_budget_bytes = core.budget.limit_bytes(),
                        .rpcs_running = core.rpcs.running(),
                        .staleness = core.staleness.Read(),
                        .epoch_seconds = core.flusher.epoch_seconds(),
                        .since_epoch = core.flusher.SinceEpoch()};
  const std::vector<std::shared_ptr<Job>> jobs = core.registry.jobs();
  for (const std::shared_ptr<Job>& job : jobs) {
    figures.jobs.push_back(FiguresOf(core, detail, *job));
  }
  if (detail == FigureDetail::kMetrics) {
    CountWaits(core, jobs, figures.waiting_calls);
    figures.rpcs = core.rpcs.Read();
    figures.store = core.store->Figures();
  }
  if (detail != FigureDetail::kSample) figures.disk_bytes = core.store->DiskBytes();
  return figures;
}

wire::Staleness StalenessOf(const Histogram::Reading& reading) {
  wire::Staleness staleness;
  staleness.pushes = reading.count;
  staleness.mean = reading.mean();
  staleness.p99 = static_cast<int64_t>(reading.Quantile(0.99));
  staleness.max = static_cast<int64_t>(reading.max);
  return staleness;
}

}  // namespace cairn
