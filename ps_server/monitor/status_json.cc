#include "ps_server/monitor/status_json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ps_server/monitor/standing.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOrNull(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json();
}

std::string TaskOf(const wire::WorkerStanding& worker) {
  return worker.vitals.__isset.task && !worker.vitals.task.empty()
             ? worker.vitals.task
             : absl::StrCat("worker ", worker.worker);
}

Json WorkerJson(const wire::WorkerStanding& worker) {
  const wire::WorkerVitals& vitals = worker.vitals;
  Json json = {{"task", TaskOf(worker)},
               {"state", worker.state},
               {"missing", IsMissing(worker)},
               {"seconds_since_seen", worker.seconds_since_seen},
               {"step", worker.step},
               {"origin", worker.origin},
               {"durable_lag_pushes", std::max<int64_t>(0, worker.applied - worker.durable)}};
  if (vitals.__isset.loss) json["loss"] = NumberOrNull(vitals.loss);
  if (vitals.__isset.staleness_mean) json["staleness_mean"] = NumberOrNull(vitals.staleness_mean);
  return json;
}

// Takes the workers it shows off `room`.
Json JobJson(const JobFigures& job, size_t& room) {
  Json workers = Json::array();
  for (const wire::WorkerStanding& worker : job.workers) {
    if (room == 0) break;
    --room;
    workers.push_back(WorkerJson(worker));
  }
  Json waiting = Json::array();
  for (const wire::WaitingCall& call : job.waiting) {
    if (waiting.size() == kMostWaitsShown) break;
    waiting.push_back({{"seconds", call.seconds}, {"text", call.text}});
  }
  return {{"name", job.name},
          {"consistency", job.consistency},
          {"variables", job.variables},
          {"rows", job.rows},
          {"durable_lag_pushes", job.DurableLag()},
          {"worker_count", job.workers.size()},
          {"workers", std::move(workers)},
          {"waiting_count", job.waiting_count},
          {"waiting", std::move(waiting)}};
}

Json JobsJson(const std::vector<JobFigures>& jobs) {
  std::vector<const JobFigures*> order;
  order.reserve(jobs.size());
  for (const JobFigures& job : jobs) order.push_back(&job);
  std::stable_partition(order.begin(), order.end(), [](const JobFigures* job) {
    return std::any_of(job->workers.begin(), job->workers.end(), IsExpectedToCall);
  });
  if (order.size() > kMostJobsShown) order.resize(kMostJobsShown);
  Json json = Json::array();
  size_t room = kMostWorkersShown;
  for (const JobFigures* job : order) json.push_back(JobJson(*job, room));
  return json;
}

// What workers that are heard of say of the other servers.
Json ServersJson(const ClusterPlace& place, const std::string& state, const EngineFigures* engine) {
  std::map<int32_t, std::vector<std::string>> gone;
  bool anyone = false;
  if (engine != nullptr) {
    for (const JobFigures& job : engine->jobs) {
      for (const wire::WorkerStanding& worker : job.workers) {
        if (!IsHeard(worker) || !worker.__isset.vitals) continue;
        anyone = true;
        for (const int32_t server : worker.vitals.servers_gone) {
          gone[server].push_back(TaskOf(worker));
        }
      }
    }
  }
  Json servers = Json::array();
  for (size_t i = 0; i < place.servers.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    const bool self = index == place.server_index;
    const bool unreached = gone.contains(index);
    std::vector<std::string>& by = gone[index];
    const size_t count = self ? 0 : by.size();
    by.resize(std::min(count, kMostNamed));
    servers.push_back({{"task", absl::StrCat("ps:", i)},
                       {"address", place.servers[i]},
                       {"self", self},
                       {"state", self        ? state
                                 : unreached ? "gone"
                                 : anyone    ? "reached"
                                             : "unknown"},
                       {"gone_for", by},
                       {"gone_for_count", count}});
  }
  return servers;
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

void AddServer(const EngineFigures& engine, const ListenerFigures& listener, Json& json) {
  const wire::Staleness staleness = StalenessOf(engine.staleness);
  json["boot"] = absl::StrCat(engine.boot_id);  // more digits than JavaScript's numbers have
  json["durability"] = engine.durability;
  json["uptime_seconds"] = absl::ToDoubleSeconds(engine.uptime);
  json["lease_seconds"] = absl::ToDoubleSeconds(engine.lease);
  json["failure"] = std::string(engine.failure.message());
  json["memory_used_bytes"] = engine.memory_used_bytes;
  json["memory_budget_bytes"] = engine.memory_budget_bytes;
  json["disk_bytes"] = engine.disk_bytes;
  json["seconds_since_epoch"] =
      engine.since_epoch.has_value() ? Json(absl::ToDoubleSeconds(*engine.since_epoch)) : Json();
  json["connections"] = listener.connections;
  json["staleness"] = {{"mean", staleness.mean}, {"p99", staleness.p99}};
  json["job_count"] = engine.jobs.size();
  json["jobs"] = JobsJson(engine.jobs);
}

}  // namespace

std::string StatusJson(const ClusterPlace& place, const std::string& state,
                       const EngineFigures* engine, const ListenerFigures& listener,
                       const std::vector<Sample>& samples, int64_t last_sample) {
  Json json = {{"server", absl::StrCat("ps:", place.server_index)},
               {"state", state},
               {"servers", ServersJson(place, state, engine)}};
  if (engine != nullptr) AddServer(*engine, listener, json);
  json["last_sample"] = last_sample;
  json["samples"] = Json::array();
  for (const Sample& sample : samples) json["samples"].push_back(SampleJson(sample));
  // What peers name is text of any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cairn
