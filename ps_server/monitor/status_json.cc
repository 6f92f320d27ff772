#include "ps_server/monitor/status_json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ps_server/monitor/server_stats.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOrNull(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json();
}

// Adds the statistics of `reading` that the page shows; integral values without a fraction.
template <typename Reading>
void AddStats(absl::Span<const ServerStat<Reading>> stats, const Reading& reading, Json& json) {
  for (const ServerStat<Reading>& stat : stats) {
    if (!stat.on_page) continue;
    const double value = stat.read(reading);
    const bool whole = value == std::floor(value) && std::abs(value) < 9e15;
    json[std::string(stat.name)] = whole ? Json(static_cast<int64_t>(value)) : Json(value);
  }
}

Json WorkerJson(const wire::WorkerStanding& worker) {
  const wire::WorkerVitals& vitals = worker.vitals;
  Json json = {{"task", TaskOf(worker)},
               {"state", worker.state},
               {"missing", IsMissing(worker)},
               {"seconds_since_seen", worker.seconds_since_seen},
               {"step", worker.step},
               {"origin", worker.origin},
               {"durable_lag_pushes", std::max<int64_t>(0, worker.applied - worker.durable)},
               {"servers_gone", vitals.servers_gone}};
  if (vitals.__isset.loss) json["loss"] = NumberOrNull(vitals.loss);
  if (vitals.__isset.staleness_mean) json["staleness_mean"] = NumberOrNull(vitals.staleness_mean);
  return json;
}

// Lists at most `room` workers, and subtracts their number from `room`.
Json WorkersJson(const std::vector<wire::WorkerStanding>& workers, size_t& room) {
  Json json = Json::array();
  for (const wire::WorkerStanding& worker : workers) {
    if (room == 0) break;
    --room;
    json.push_back(WorkerJson(worker));
  }
  return json;
}

// Lists the calls that wait on all servers that answer, longest wait first, at most kMaxWaitsShown.
Json WaitsJson(const std::vector<JobView>& views) {
  std::vector<std::pair<int32_t, const wire::WaitingCall*>> calls;
  for (const JobView& view : views) {
    for (const wire::WaitingCall& call : view.waiting) calls.emplace_back(view.server, &call);
  }
  std::ranges::stable_sort(
      calls, [](const auto& a, const auto& b) { return a.second->seconds > b.second->seconds; });
  if (calls.size() > kMaxWaitsShown) calls.resize(kMaxWaitsShown);
  Json json = Json::array();
  for (const auto& [server, call] : calls) {
    json.push_back({{"server", absl::StrCat("ps:", server)},
                    {"seconds", call->seconds},
                    {"text", call->text}});
  }
  return json;
}

// `views`: the views of all servers for the selected job; for other jobs, this server's view alone.
Json JobJson(const JobStatistics& job, const std::vector<JobView>& views, size_t& room) {
  const std::vector<wire::WorkerStanding> workers = MergedWorkers(views);
  int64_t waiting = job.waiting_count;
  for (const JobView& view : views) waiting += static_cast<int64_t>(view.waiting.size());
  waiting -= static_cast<int64_t>(job.waiting.size());
  Json json = {{"name", job.name}, {"consistency", job.consistency}};
  AddStats(JobStats(), job, json);
  json["worker_count"] = workers.size();
  json["workers"] = WorkersJson(workers, room);
  json["waiting_count"] = waiting;
  json["waiting"] = WaitsJson(views);
  return json;
}

std::vector<const JobStatistics*> InOrder(const std::vector<JobStatistics>& jobs) {
  std::vector<const JobStatistics*> order;
  order.reserve(jobs.size());
  for (const JobStatistics& job : jobs) order.push_back(&job);
  std::ranges::stable_partition(order, [](const JobStatistics* job) {
    return std::ranges::any_of(job->workers, IsExpectedToCall);
  });
  if (order.size() > kMaxJobsShown) order.resize(kMaxJobsShown);
  return order;
}

const JobStatistics* FindJob(const StatusReading& reading) {
  if (!reading.engine.has_value()) return nullptr;
  for (const JobStatistics& job : reading.engine->jobs) {
    if (job.name == reading.job) return &job;
  }
  return nullptr;
}

JobView OwnView(const StatusReading& reading, const JobStatistics& job) {
  return {.server = reading.place.server_index, .workers = job.workers, .waiting = job.waiting};
}

Json JobsJson(const StatusReading& reading) {
  Json json = Json::array();
  size_t room = kMaxWorkersShown;
  for (const JobStatistics* job : InOrder(reading.engine->jobs)) {
    const bool selected = job->name == reading.job;
    json.push_back(JobJson(
        *job, selected ? JobViewsOf(reading) : std::vector<JobView>{OwnView(reading, *job)}, room));
  }
  return json;
}

// For each server, the workers of all jobs that cannot reach it. nullopt: no worker reports.
std::optional<std::map<int32_t, std::vector<std::string>>> GoneServers(
    const StatusReading& reading) {
  std::map<int32_t, std::vector<std::string>> unreached;
  bool anyone = false;
  if (!reading.engine.has_value()) return std::nullopt;
  for (const JobStatistics& job : reading.engine->jobs) {
    for (const wire::WorkerStanding& worker : job.workers) {
      if (!IsHeard(worker) || !worker.__isset.vitals) continue;
      anyone = true;
      for (const int32_t server : worker.vitals.servers_gone) {
        unreached[server].push_back(TaskOf(worker));
      }
    }
  }
  if (!anyone) return std::nullopt;
  return unreached;
}

// The answer of another server; null: it has not been asked.
const PeerAnswer* FindPeer(const StatusReading& reading, int32_t server) {
  if (reading.peers == nullptr) return nullptr;
  for (const PeerAnswer& peer : *reading.peers) {
    if (peer.server == server) return &peer;
  }
  return nullptr;
}

std::string StateOfPeer(const PeerAnswer* peer, bool told, bool unreached) {
  if (unreached) return "gone";
  if (peer == nullptr) return told ? "reached" : "unknown";
  if (peer->status.ok()) return "serving";
  if (IsRefusal(peer->status)) return "refuses";
  return told ? "reached" : "silent";
}

// The servers by index, with their addresses: the cluster file's until the others have answered,
// then this server and those that are asked.
std::map<int32_t, std::string> ServersOf(const StatusReading& reading) {
  std::map<int32_t, std::string> servers;
  for (size_t i = 0; i < reading.place.servers.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (reading.peers != nullptr && index != reading.place.server_index) continue;
    servers[index] = reading.place.servers[i];
  }
  if (reading.peers == nullptr) return servers;
  for (const PeerAnswer& peer : *reading.peers) servers[peer.server] = peer.address;
  return servers;
}

// The state of each server, as reported by itself and by the workers.
Json ServersJson(const StatusReading& reading) {
  auto told = GoneServers(reading);
  Json servers = Json::array();
  for (const auto& [index, address] : ServersOf(reading)) {
    const bool self = index == reading.place.server_index;
    const bool unreached = told.has_value() && told->contains(index);
    const PeerAnswer* const peer = self ? nullptr : FindPeer(reading, index);
    std::vector<std::string> by = unreached && !self ? (*told)[index] : std::vector<std::string>();
    const size_t count = by.size();
    by.resize(std::min(count, kMaxNamed));
    Json server = {{"task", absl::StrCat("ps:", index)},
                   {"address", address},
                   {"self", self},
                   {"state", self ? reading.state : StateOfPeer(peer, told.has_value(), unreached)},
                   {"gone_for", by},
                   {"gone_for_count", count}};
    if (peer != nullptr && !peer->status.ok()) {
      server["error"] = std::string(peer->status.message());
    }
    if (peer != nullptr && !peer->described.status_page.empty()) {
      server["page"] = peer->described.status_page;
    }
    servers.push_back(std::move(server));
  }
  return servers;
}

// Totals over all servers that answer.
Json ClusterJson(const StatusReading& reading) {
  const EngineStatistics& engine = *reading.engine;
  const JobStatistics* const job = FindJob(reading);
  int64_t memory = engine.memory_used_bytes, budget = engine.memory_budget_bytes;
  int64_t disk = engine.disk_bytes, lag = job == nullptr ? 0 : job->DurableLag();
  int64_t rows = job == nullptr ? 0 : job->rows;
  int64_t answered = 1;
  std::set<std::string> names;
  for (const PeerAnswer& peer :
       reading.peers == nullptr ? std::vector<PeerAnswer>() : *reading.peers) {
    if (!peer.status.ok()) continue;
    ++answered;
    memory += peer.described.memory_used_bytes;
    budget += peer.described.memory_budget_bytes;
    disk += std::max<int64_t>(peer.described.disk_bytes, 0);
    for (const wire::WorkerStanding& worker : peer.why.workers) {
      lag += std::max<int64_t>(0, worker.applied - worker.durable);
    }
    for (const wire::VariableInfo& info : peer.described.variables) {
      names.insert(info.spec.name);
      for (const wire::ShardInfo& shard : info.shards) rows += shard.rows;
    }
  }
  return {{"servers", ServersOf(reading).size()},
          {"answered", answered},
          {"asked", reading.peers != nullptr},
          {"memory_used_bytes", memory},
          {"memory_budget_bytes", budget},
          {"disk_bytes", disk},
          {"rows", rows},
          {"variables", std::max(names.size(),
                                 job == nullptr ? size_t{0} : static_cast<size_t>(job->variables))},
          {"durable_lag_pushes", lag}};
}

// Seconds since every server had ended a checkpoint of the selected job; nullopt: no such
// checkpoint, or a server does not answer.
std::optional<double> CheckpointAge(const StatusReading& reading) {
  const JobStatistics* const job = FindJob(reading);
  if (job == nullptr || !job->since_checkpoint.has_value()) return std::nullopt;
  double age = absl::ToDoubleSeconds(*job->since_checkpoint);
  for (const PeerAnswer& peer :
       reading.peers == nullptr ? std::vector<PeerAnswer>() : *reading.peers) {
    if (!peer.status.ok() || peer.described.seconds_since_checkpoint < 0) return std::nullopt;
    age = std::max(age, peer.described.seconds_since_checkpoint);
  }
  return age;
}

Json JobStateJson(const StatusReading& reading, const JobState& state) {
  const std::optional<JobProgress> progress = ProgressOf(MergedWorkers(JobViewsOf(reading)));
  Json json = {{"job", reading.job},
               {"phase", std::string(JobPhaseName(state.phase))},
               {"sentence", state.Sentence()}};
  json["share_done"] = progress.has_value() ? Json(progress->share_done) : Json();
  json["seconds_left"] = NumberOrNull(progress.has_value() ? progress->seconds_left : std::nullopt);
  json["seconds_since_checkpoint"] = NumberOrNull(CheckpointAge(reading));
  return json;
}

Json SampleJson(const Sample& sample) {
  Json jobs = Json::object();
  for (const JobSample& job : sample.jobs) {
    jobs[job.name] = {{"loss", NumberOrNull(job.loss)},
                      {"examples", NumberOrNull(job.examples_per_second)},
                      {"steps", NumberOrNull(job.steps_per_second)},
                      {"lag", job.durable_lag_pushes}};
  }
  return {{"n", sample.number},
          {"t", absl::ToUnixMillis(sample.at)},
          {"staleness", NumberOrNull(sample.staleness_mean)},
          {"jobs", std::move(jobs)}};
}

void AddServer(const StatusReading& reading, Json& json) {
  const EngineStatistics& engine = *reading.engine;
  const wire::Staleness staleness = StalenessOf(engine.staleness);
  json["boot"] = absl::StrCat(engine.boot_id);  // more digits than JavaScript's numbers have
  json["durability"] = engine.durability;
  json["uptime_seconds"] = absl::ToDoubleSeconds(engine.uptime);
  json["failure"] = std::string(engine.failure.message());
  AddStats(EngineStats(), engine, json);
  json["seconds_since_snapshot"] =
      engine.since_epoch.has_value() ? Json(absl::ToDoubleSeconds(*engine.since_epoch)) : Json();
  AddStats(ListenerStats(), reading.listener, json);
  json["counters"] = engine.counters;
  json["staleness"] = {{"mean", staleness.mean}, {"p99", staleness.p99}};
  json["job_count"] = engine.jobs.size();
  json["jobs"] = JobsJson(reading);
}

}  // namespace

std::string FirstJob(const EngineStatistics& engine) {
  const std::vector<const JobStatistics*> order = InOrder(engine.jobs);
  return order.empty() ? "" : order.front()->name;
}

std::vector<JobView> JobViewsOf(const StatusReading& reading) {
  std::vector<JobView> views;
  if (const JobStatistics* const job = FindJob(reading); job != nullptr) {
    views.push_back(OwnView(reading, *job));
  }
  if (reading.peers == nullptr) return views;
  for (const PeerAnswer& peer : *reading.peers) {
    views.push_back({.server = peer.server,
                     .status = peer.status,
                     .workers = peer.why.workers,
                     .waiting = peer.why.waiting});
  }
  return views;
}

std::string StatusJson(const StatusReading& reading, const JobState& job_state) {
  Json json = {{"server", absl::StrCat("ps:", reading.place.server_index)},
               {"state", reading.state},
               {"servers", ServersJson(reading)}};
  if (reading.engine.has_value()) {
    json["job_state"] = JobStateJson(reading, job_state);
    json["cluster"] = ClusterJson(reading);
    AddServer(reading, json);
  }
  json["last_sample"] = reading.last_sample;
  json["samples"] = Json::array();
  for (const Sample& sample : reading.samples) json["samples"].push_back(SampleJson(sample));
  // Text from peers may not be valid UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cairn
