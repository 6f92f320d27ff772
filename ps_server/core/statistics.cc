#include "ps_server/core/statistics.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "common/consistency.h"
#include "ps_server/jobs/registry.h"
#include "ps_server/persistence/flusher.h"

namespace cairn {
namespace {

void AddVariables(Job& job, StatisticsDetail detail, JobStatistics& statistics) {
  const auto variables = job.variables();
  statistics.variables = static_cast<int64_t>(variables->size());
  for (const auto& [name, variable] : *variables) {
    for (HostedShard* shard : variable->shards()) {
      statistics.rows += shard->row_count();
      statistics.memory_bytes += shard->memory_bytes();
      statistics.rows_in_memory += shard->row_count();
    }
    const HostedTable* const table = variable->table();
    if (table == nullptr) continue;
    statistics.rows_in_memory -= table->cold_rows();
    AddCounts(table->counts(), statistics.row_counts);
    if (detail == StatisticsDetail::kMetrics) statistics.census += table->census();
  }
}

int64_t DirtyStripesOf(Job& job) {
  int64_t dirty = 0;
  const auto variables = job.variables();
  for (const auto& [name, variable] : *variables) {
    for (HostedShard* shard : variable->shards()) dirty += shard->dirty().count();
  }
  return dirty;
}

void AddWaits(const WaitBoard& waits, Job& job, JobStatistics& statistics) {
  wire::WhyReply why;
  size_t waiting = job.cohort().FillWhy(why, kMaxWaitsShown);
  waiting += job.steps().FillWhy(why, kMaxWaitsShown);
  const size_t listed = why.waiting.size();
  waits.List(job.name(), why.waiting);
  statistics.waiting_count = static_cast<int64_t>(waiting + why.waiting.size() - listed);
  statistics.waiting = std::move(why.waiting);
  std::ranges::sort(statistics.waiting,
                    [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  statistics.workers = std::move(why.workers);
}

JobStatistics ReadJob(const WaitBoard& waits, StatisticsDetail detail, Job& job) {
  JobStatistics statistics{.name = job.name(),
                           .consistency = ConsistencyText(job.cohort().settings()),
                           .since_checkpoint = job.SinceCheckpoint()};
  if (detail != StatisticsDetail::kSample) AddVariables(job, detail, statistics);
  if (detail == StatisticsDetail::kMetrics) statistics.dirty_stripes = DirtyStripesOf(job);
  if (detail == StatisticsDetail::kPage) {
    AddWaits(waits, job, statistics);
  } else {
    statistics.workers = job.cohort().Standings();
  }
  return statistics;
}

// The counters of the server by name. The flusher has the value of "epochs".
std::map<std::string, int64_t> CountersByName(const StatisticsReader& reader) {
  std::map<std::string, int64_t> by_name;
  for (size_t i = 0; i < Counter::kCount; ++i) {
    const Counter counter = Counter::At(i);
    by_name.emplace(counter->name, counter == Counter("epochs") ? reader.flusher.epochs()
                                                                : reader.counters.Get(counter));
  }
  return by_name;
}

void CountWaits(const WaitBoard& waits, const std::vector<std::shared_ptr<Job>>& jobs,
                std::map<std::string, int64_t>& counts) {
  waits.Count(counts);
  for (const std::shared_ptr<Job>& job : jobs) {
    counts["step"] += static_cast<int64_t>(job->cohort().waiting());
    job->steps().CountWaits(counts);
  }
}

}  // namespace

int64_t JobStatistics::DurableLag() const {
  int64_t lag = 0;
  for (const wire::WorkerStanding& worker : workers) {
    const int64_t room = std::numeric_limits<int64_t>::max() - lag;
    lag += std::clamp<int64_t>(worker.applied - worker.durable, 0, room);
  }
  return lag;
}

EngineStatistics StatisticsReader::Read(StatisticsDetail detail) const {
  EngineStatistics statistics{.boot_id = info.boot_id,
                              .durability = std::string(DurabilityName(info.options.durability)),
                              .uptime = info.uptime(),
                              .lease = info.options.lease,
                              .failure = flusher.failure(),
                              .counters = CountersByName(*this),
                              .memory_used_bytes = budget.used_bytes(),
                              .memory_budget_bytes = budget.limit_bytes(),
                              .rpcs_running = rpcs.running(),
                              .staleness = staleness.Read(),
                              .epoch_seconds = flusher.epoch_seconds(),
                              .since_epoch = flusher.SinceEpoch()};
  const std::vector<std::shared_ptr<Job>> jobs = registry.jobs();
  for (const std::shared_ptr<Job>& job : jobs)
    statistics.jobs.push_back(ReadJob(waits, detail, *job));
  if (detail == StatisticsDetail::kMetrics) {
    CountWaits(waits, jobs, statistics.waiting_calls);
    statistics.rpcs = rpcs.Read();
    statistics.store = store.ReadStatistics();
  }
  if (detail == StatisticsDetail::kPage) statistics.members = members.Tell("", /*worker=*/-1);
  if (detail != StatisticsDetail::kSample) statistics.disk_bytes = store.DiskBytes();
  return statistics;
}

void StatisticsReader::Fill(bool with_server, wire::DescribeReply& reply) const {
  constexpr size_t kMaxJobs = 1024;
  reply.server_index = info.index();
  reply.durability = std::string(DurabilityName(info.options.durability));
  reply.memory_used_bytes = budget.used_bytes();
  reply.memory_budget_bytes = budget.limit_bytes();
  reply.uptime_seconds = absl::ToDoubleSeconds(info.uptime());
  reply.counters = CountersByName(*this);
  if (!with_server) return;
  reply.disk_bytes = store.DiskBytes();
  const auto since = flusher.SinceEpoch();
  reply.seconds_since_epoch = since.has_value() ? absl::ToDoubleSeconds(*since) : -1;
  reply.status_page = info.options.status_page;
  reply.__set_staleness(StalenessOf(staleness.Read()));
  for (const std::shared_ptr<Job>& job : registry.jobs()) {
    reply.jobs.push_back(job->name());
    reply.dirty_stripes += DirtyStripesOf(*job);
  }
  if (reply.jobs.size() > kMaxJobs) reply.jobs.resize(kMaxJobs);
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
