// What one answer of /status.json may hold, however much the server's users name.
#include "ps_server/monitor/status_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

Json StatusOf(const EngineFigures& engine) {
  const ClusterPlace place = {.servers = {"a:1", "b:1"}};
  return Json::parse(StatusJson(place, "serving", &engine, {}, {}, 0));
}

TEST(StatusJson, JobsWithWorkersComeFirstAndAllAreCounted) {
  EngineFigures engine;
  for (size_t i = 0; i < kMostJobsShown + 5; ++i) {
    engine.jobs.push_back({.name = absl::StrCat("idle", i)});
  }
  engine.jobs.push_back({.name = "trains", .workers = {Live(0)}});
  const Json status = StatusOf(engine);
  EXPECT_EQ(status["job_count"], kMostJobsShown + 6);
  ASSERT_EQ(status["jobs"].size(), kMostJobsShown);
  EXPECT_EQ(status["jobs"][0]["name"], "trains");
  EXPECT_EQ(status["jobs"][1]["name"], "idle0");
}

TEST(StatusJson, WorkersOfAllJobsTogetherAreBounded) {
  EngineFigures engine;
  for (const char* name : {"a", "b"}) {
    JobFigures job{.name = name};
    for (size_t i = 0; i < kMostWorkersShown - 10; ++i) {
      job.workers.push_back(Live(static_cast<int32_t>(i)));
    }
    engine.jobs.push_back(job);
  }
  const Json status = StatusOf(engine);
  EXPECT_EQ(status["jobs"][0]["workers"].size(), kMostWorkersShown - 10);
  EXPECT_EQ(status["jobs"][1]["workers"].size(), 10);
  EXPECT_EQ(status["jobs"][1]["worker_count"], kMostWorkersShown - 10);
}

TEST(StatusJson, AServerThatWorkersMissIsGoneForTheFirstOfThem) {
  EngineFigures engine;
  JobFigures job{.name = "clicks"};
  for (int32_t worker = 0; worker < 5; ++worker) job.workers.push_back(Live(worker, {1}));
  engine.jobs.push_back(job);
  const Json server = StatusOf(engine)["servers"][1];
  EXPECT_EQ(server["state"], "gone");
  EXPECT_THAT(server["gone_for"], ElementsAre("worker:0", "worker:1", "worker:2"));
  EXPECT_EQ(server["gone_for_count"], 5);
}

TEST(StatusJson, BytesThatAreNoTextDoNotBreakIt) {
  EngineFigures engine;
  engine.jobs.push_back({.name = "\xff\xfe"});
  EXPECT_EQ(StatusOf(engine)["jobs"][0]["name"], "\uFFFD\uFFFD");
}

}  // namespace
}  // namespace cairn
