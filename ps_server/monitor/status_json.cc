#include "ps_server/monitor/status_json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
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
               {"ordinal", worker.worker},
               {"state", worker.state},
               {"missing", IsMissing(worker)},
               {"seconds_since_seen", worker.seconds_since_seen},
               {"step", worker.step},
               {"origin", worker.origin},
               {"largest_step_gap", worker.largest_step_gap},
               {"durable_lag_pushes", std::max<int64_t>(0, worker.applied - worker.durable)}};
  if (vitals.__isset.steps) json["steps_done"] = vitals.steps;
  if (vitals.__isset.examples) json["examples_done"] = vitals.examples;
  if (vitals.__isset.loss) json["loss"] = NumberOrNull(vitals.loss);
  if (vitals.__isset.staleness_mean) json["staleness_mean"] = NumberOrNull(vitals.staleness_mean);
  if (vitals.__isset.staleness_max) json["staleness_max"] = vitals.staleness_max;
  if (vitals.__isset.retained_bytes) json["retained_bytes"] = vitals.retained_bytes;
  return json;
}

Json WaitJson(const wire::WaitingCall& call) {
  Json missing = Json::array();
  for (const wire::WorkerStanding& worker : call.missing) missing.push_back(worker.worker);
  return {{"worker", call.worker},
          {"waits_for", call.waits_for},
          {"seconds", call.seconds},
          {"text", call.text},
          {"missing", std::move(missing)}};
}

Json JobJson(const JobFigures& job) {
  Json workers = Json::array();
  for (const wire::WorkerStanding& worker : job.why.workers) {
    if (workers.size() == kMostWorkersShown) break;
    workers.push_back(WorkerJson(worker));
  }
  Json waiting = Json::array();
  for (const wire::WaitingCall& call : job.why.waiting) {
    if (waiting.size() == kMostWaitsShown) break;
    waiting.push_back(WaitJson(call));
  }
  return {{"name", job.name},
          {"consistency", job.consistency},
          {"variables", job.variables},
          {"rows", job.rows},
          {"memory_bytes", job.memory_bytes},
          {"dirty_stripes", job.dirty_stripes},
          {"durable_lag_pushes", job.DurableLag()},
          {"closed_step", job.closed_step},
          {"worker_count", job.why.workers.size()},
          {"workers", std::move(workers)},
          {"waiting_count", job.why.waiting.size()},
          {"waiting", std::move(waiting)}};
}

// What workers that are heard of say of the other servers.
Json ServersJson(const ClusterPlace& place, const std::string& state, const EngineFigures* engine) {
  std::map<int32_t, std::vector<std::string>> gone;
  bool anyone = false;
  if (engine != nullptr) {
    for (const JobFigures& job : engine->jobs) {
      for (const wire::WorkerStanding& worker : job.why.workers) {
        if (!IsExpectedToCall(worker) || IsMissing(worker) || !worker.__isset.vitals) continue;
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
    servers.push_back({{"task", absl::StrCat("ps:", i)},
                       {"address", place.servers[i]},
                       {"self", self},
                       {"state", self        ? state
                                 : unreached ? "gone"
                                 : anyone    ? "reached"
                                             : "unknown"},
                       {"gone_for", unreached && !self ? Json(gone[index]) : Json::array()}});
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
          {"pushes", sample.pushes_per_second},
          {"pulls", sample.pulls_per_second},
          {"received", sample.received_bytes_per_second},
          {"sent", sample.sent_bytes_per_second},
          {"staleness", NumberOrNull(sample.staleness_mean)},
          {"epoch_age", sample.epoch_age_seconds},
          {"memory", sample.memory_used_bytes},
          {"jobs", std::move(jobs)}};
}

void AddServer(const EngineFigures& engine, const ListenerFigures& listener, Json& json) {
  json["durability"] = engine.durability;
  json["uptime_seconds"] = engine.uptime_seconds;
  json["lease_seconds"] = engine.lease_seconds;
  json["failure"] = std::string(engine.failure.message());
  json["memory_used_bytes"] = engine.memory_used_bytes;
  json["memory_budget_bytes"] = engine.memory_budget_bytes;
  json["disk_bytes"] = engine.disk_bytes;
  json["seconds_since_epoch"] =
      engine.seconds_since_epoch < 0 ? Json() : Json(engine.seconds_since_epoch);
  json["connections"] = listener.connections;
  json["rpcs_in_flight"] = engine.rpcs_running;
  json["counters"] = engine.counters;
  json["staleness"] = {{"pushes", engine.staleness.count},
                       {"mean", engine.staleness.mean()},
                       {"p99", engine.staleness.Quantile(0.99)},
                       {"max", engine.staleness.max}};
  json["jobs"] = Json::array();
  for (const JobFigures& job : engine.jobs) json["jobs"].push_back(JobJson(job));
}

}  // namespace

std::string StatusJson(const ClusterPlace& place, const std::string& state,
                       const EngineFigures* engine, const ListenerFigures& listener,
                       const std::vector<Sample>& samples, int64_t last_sample) {
  Json json = {{"server", absl::StrCat("ps:", place.server_index)},
               {"state", state},
               {"time", absl::ToUnixMillis(absl::Now())},
               {"missing_after_seconds", kMissingSeconds},
               {"servers", ServersJson(place, state, engine)}};
  if (engine != nullptr) AddServer(*engine, listener, json);
  json["last_sample"] = last_sample;
  json["samples"] = Json::array();
  for (const Sample& sample : samples) json["samples"].push_back(SampleJson(sample));
  // What peers name is text of any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cairn
