// What one answer of /status.json may hold, however much the server's users name.
#include "ps_server/monitor/status_json.h"
#include "ps_server/core/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;

wire::WorkerStanding Live(int32_t worker, const std::vector<int32_t>& servers_gone = {}) {
  wire::WorkerStanding standing;
  standing.worker = worker;
  standing.state = "live";
  wire::WorkerVitals vitals;
  vitals.__set_task(absl::StrCat("worker:", worker));
  vitals.__set_servers_gone(servers_gone);
  standing.__set_vitals(vitals);
  return standing;
}

StatusReading Reading(const EngineStatistics& engine) {
  return {.place = {.servers = {"a:1", "b:1"}},
          .state = "serving",
          .engine = engine,
          .job = FirstJob(engine)};
}

Json StatusOf(const StatusReading& reading) {
  return Json::parse(StatusJson(reading, StateOf(JobViewsOf(reading))));
}
Json StatusOf(const EngineStatistics& engine) { return StatusOf(Reading(engine)); }

// ps:1's answer about a job with `workers`.
PeerAnswer Peer(const std::vector<wire::WorkerStanding>& workers) {
  PeerAnswer peer{.server = 1};
  peer.described.server_index = 1;
  peer.described.memory_used_bytes = 100;
  peer.described.memory_budget_bytes = 1000;
  peer.described.disk_bytes = 7;
  peer.described.seconds_since_checkpoint = 30;
  peer.described.status_page = "http://b:8080/";
  wire::VariableInfo info;
  info.spec.name = "kernel";
  info.shards.emplace_back();
  info.shards.back().rows = 4;
  peer.described.variables.push_back(info);
  peer.why.workers = workers;
  return peer;
}

TEST(StatusJson, ServersAreThisOneAndThoseThatAreAsked) {
  StatusReading reading = Reading(EngineStatistics());
  const auto tasks = [](const Json& status) {
    std::vector<std::string> found;
    for (const Json& server : status["servers"]) {
      found.push_back(absl::StrCat(server["task"].get<std::string>(), " ",
                                   server["address"].get<std::string>()));
    }
    return found;
  };
  Json status = StatusOf(reading);  // of the cluster file, before the others have answered
  EXPECT_THAT(tasks(status), ElementsAre("ps:0 a:1", "ps:1 b:1"));
  EXPECT_EQ(status["cluster"]["servers"], 2);
  // ps:1 has left; ps:2 and ps:3 have joined.
  reading.peers = std::make_shared<std::vector<PeerAnswer>>(
      std::vector<PeerAnswer>{{.server = 2, .address = "c:1"}, {.server = 3, .address = "d:1"}});
  status = StatusOf(reading);
  EXPECT_THAT(tasks(status), ElementsAre("ps:0 a:1", "ps:2 c:1", "ps:3 d:1"));
  EXPECT_EQ(status["cluster"]["servers"], 3);
  EXPECT_EQ(status["cluster"]["answered"], 3);
}

TEST(StatusJson, JobsWithWorkersComeFirstAndAllAreCounted) {
  EngineStatistics engine;
  for (size_t i = 0; i < kMaxJobsShown + 5; ++i) {
    engine.jobs.push_back({.name = absl::StrCat("idle", i)});
  }
  engine.jobs.push_back({.name = "trains", .workers = {Live(0)}});
  const Json status = StatusOf(engine);
  EXPECT_EQ(status["job_count"], kMaxJobsShown + 6);
  ASSERT_EQ(status["jobs"].size(), kMaxJobsShown);
  EXPECT_EQ(status["jobs"][0]["name"], "trains");
  EXPECT_EQ(status["jobs"][1]["name"], "idle0");
}

// Whole numbers stay whole: readers parse bytes and rows as integers.
TEST(StatusJson, HasTheNumbersOfTheTables) {
  EngineStatistics engine;
  engine.lease = absl::Milliseconds(2500);
  engine.memory_used_bytes = 123;
  engine.counters = {{"pushes", 7}};
  engine.jobs.push_back({.name = "j", .rows = 5});
  StatusReading reading = Reading(engine);
  reading.listener.connections = 2;
  const Json status = StatusOf(reading);
  EXPECT_EQ(status["lease_seconds"], 2.5);
  EXPECT_TRUE(status["memory_used_bytes"].is_number_integer());
  EXPECT_EQ(status["memory_used_bytes"], 123);
  EXPECT_EQ(status["connections"], 2);
  EXPECT_EQ(status["counters"]["pushes"], 7);
  EXPECT_EQ(status["jobs"][0]["rows"], 5);
  EXPECT_FALSE(status.contains("rpcs_in_flight")) << "of /metrics alone";
}

TEST(StatusJson, WorkersOfAllJobsTogetherAreBounded) {
  EngineStatistics engine;
  for (const char* name : {"a", "b"}) {
    JobStatistics job{.name = name};
    for (size_t i = 0; i < kMaxWorkersShown - 10; ++i) {
      job.workers.push_back(Live(static_cast<int32_t>(i)));
    }
    engine.jobs.push_back(job);
  }
  const Json status = StatusOf(engine);
  EXPECT_EQ(status["jobs"][0]["workers"].size(), kMaxWorkersShown - 10);
  EXPECT_EQ(status["jobs"][1]["workers"].size(), 10);
  EXPECT_EQ(status["jobs"][1]["worker_count"], kMaxWorkersShown - 10);
}

TEST(StatusJson, AServerThatWorkersMissIsGoneForTheFirstOfThem) {
  EngineStatistics engine;
  JobStatistics job{.name = "clicks"};
  for (int32_t worker = 0; worker < 5; ++worker) job.workers.push_back(Live(worker, {1}));
  engine.jobs.push_back(job);
  const Json server = StatusOf(engine)["servers"][1];
  EXPECT_EQ(server["state"], "gone");
  EXPECT_THAT(server["gone_for"], ElementsAre("worker:0", "worker:1", "worker:2"));
  EXPECT_EQ(server["gone_for_count"], 5);
}

TEST(StatusJson, SumsAreThoseOfAllServersThatAnswer) {
  EngineStatistics engine{.memory_used_bytes = 11, .memory_budget_bytes = 1000, .disk_bytes = 5};
  engine.jobs.push_back({
      .name = "clicks",
      .variables = 1,
      .rows = 3,
      .workers = {Live(0)},
      .since_checkpoint = absl::Seconds(40),
  });
  StatusReading reading = Reading(engine);
  Json status = StatusOf(reading);
  EXPECT_EQ(status["cluster"]["memory_used_bytes"], 11);
  EXPECT_EQ(status["cluster"]["asked"], false);
  EXPECT_EQ(status["job_state"]["seconds_since_checkpoint"], 40);
  wire::WorkerStanding behind = Live(0);
  behind.applied = 9;
  behind.durable = 4;
  reading.peers =
      std::make_shared<std::vector<PeerAnswer>>(std::vector<PeerAnswer>{Peer({behind})});
  status = StatusOf(reading);
  const Json& all = status["cluster"];
  EXPECT_EQ(all["answered"], 2);
  EXPECT_EQ(all["memory_used_bytes"], 111);
  EXPECT_EQ(all["memory_budget_bytes"], 2000);
  EXPECT_EQ(all["disk_bytes"], 12);
  EXPECT_EQ(all["rows"], 7);
  EXPECT_EQ(all["variables"], 1);
  EXPECT_EQ(all["durable_lag_pushes"], 5);
  EXPECT_EQ(status["servers"][1]["state"], "serving");
  EXPECT_EQ(status["servers"][1]["page"], "http://b:8080/");
  // The server whose part is oldest decides how old the last whole checkpoint is.
  EXPECT_EQ(status["job_state"]["seconds_since_checkpoint"], 40);
}

TEST(StatusJson, ProgressIsThatOfTheWorkerWithTheMostLeft) {
  EngineStatistics engine;
  engine.jobs.push_back({.name = "clicks", .workers = {Live(0), Live(1), Live(2)}});
  std::vector<wire::WorkerStanding>& workers = engine.jobs[0].workers;
  EXPECT_TRUE(StatusOf(engine)["job_state"]["share_done"].is_null());
  EXPECT_TRUE(StatusOf(engine)["job_state"]["seconds_left"].is_null());
  workers[0].vitals.__set_share_done(0.75);
  workers[0].vitals.__set_seconds_left(40);
  workers[1].vitals.__set_share_done(0.5);
  EXPECT_EQ(StatusOf(engine)["job_state"]["share_done"], 0.5);
  EXPECT_TRUE(StatusOf(engine)["job_state"]["seconds_left"].is_null());
  workers[1].vitals.__set_seconds_left(120);
  EXPECT_EQ(StatusOf(engine)["job_state"]["seconds_left"], 120);
}

TEST(StatusJson, WhatAnotherServerKnowsOfTheJobIsShownHereToo) {
  EngineStatistics engine;
  engine.jobs.push_back({.name = "clicks", .workers = {Live(0), Live(1)}});
  StatusReading reading = Reading(engine);
  PeerAnswer peer = Peer({Live(0), Live(1)});
  wire::WaitingCall call;
  call.worker = 0;
  call.waits_for = "step";
  call.seconds = 4;
  call.text = "worker 0 waits";
  call.missing = {Live(1)};
  peer.why.waiting = {call};
  reading.peers = std::make_shared<std::vector<PeerAnswer>>(std::vector<PeerAnswer>{peer});
  const Json status = StatusOf(reading);
  EXPECT_EQ(status["job_state"]["sentence"], "Waiting 4 s: worker:0 waits for worker:1");
  EXPECT_EQ(status["jobs"][0]["waiting"][0]["server"], "ps:1");
  EXPECT_EQ(status["jobs"][0]["waiting_count"], 1);
}

TEST(StatusJson, AServerThatIsSilentOrRefusesIsNamed) {
  EngineStatistics engine;
  engine.jobs.push_back({.name = "clicks", .workers = {}});
  StatusReading reading = Reading(engine);
  const auto answer = [&](const absl::Status& status) {
    reading.peers = std::make_shared<std::vector<PeerAnswer>>(
        std::vector<PeerAnswer>{{.server = 1, .status = status}});
    return StatusOf(reading);
  };
  Json status = answer(absl::UnavailableError("connection refused"));
  EXPECT_EQ(status["servers"][1]["state"], "silent");
  EXPECT_EQ(status["servers"][1]["error"], "connection refused");
  EXPECT_EQ(status["cluster"]["answered"], 1);
  status = answer(absl::PermissionDeniedError("no role"));
  EXPECT_EQ(status["servers"][1]["state"], "refuses");
  EXPECT_EQ(status["job_state"]["sentence"], "No workers: none has joined");
}

TEST(StatusJson, BytesThatAreNoTextDoNotBreakIt) {
  EngineStatistics engine;
  engine.jobs.push_back({.name = "\xff\xfe"});
  EXPECT_EQ(StatusOf(engine)["jobs"][0]["name"], "\uFFFD\uFFFD");
}

}  // namespace
}  // namespace cairn
