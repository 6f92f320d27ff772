// The output of status, why and inspect for given answers of servers: the same facts as text and as
// JSON, servers with and without an answer, rates between two samples.
#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "worker/ctl/job_commands.h"
#include "worker/ctl/jobs.h"
#include "worker/ctl/launch_watch.h"

namespace cairn {
namespace {

Target TwoServers() {
  Target target;
  target.members.addresses = {"a:1", "b:2"};
  target.cluster.tasks = {
      {"ps", target.members.addresses}, {"chief", {"c:1"}}, {"worker", {"d:1"}}};
  target.job = "small";
  return target;
}

wire::WorkerStanding Standing(int32_t worker, int64_t step, double seconds) {
  wire::WorkerStanding standing;
  standing.worker = worker;
  standing.state = "live";
  standing.origin = "host/7";
  standing.step = step;
  standing.seconds_since_seen = seconds;
  return standing;
}

ServerView Answering(const Target& target, size_t index, int64_t pushes) {
  ServerView view{.name = target.ServerName(index)};
  view.described.server_index = static_cast<int32_t>(index);
  view.described.durability = "snapshot";
  view.described.counters["pushes"] = pushes;
  wire::VariableInfo info;
  info.spec.name = "kernel";
  info.spec.shape = {8, 2};
  info.slots = {"accumulator"};
  wire::ShardInfo shard;
  shard.shard = static_cast<int32_t>(index);
  shard.first_row = static_cast<int64_t>(index) * 4;
  shard.rows = 4;
  shard.stripes = 1;
  shard.version = 10 + static_cast<int64_t>(index);
  shard.memory_bytes = 512;
  info.shards.push_back(shard);
  view.described.variables.push_back(info);
  return view;
}

ServerView Silent(const Target& target, size_t index) {
  return {.name = target.ServerName(index), .status = absl::UnavailableError("refused")};
}

TEST(Status, TellsWhatServersAndWorkersSayOfThemselves) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 100), Answering(target, 1, 100)};
  servers[0].described.disk_bytes = 3 << 20;
  servers[0].described.seconds_since_epoch = 2;
  servers[0].described.counters["epochs"] = 9;
  servers[0].described.jobs = {"large", "small"};
  wire::Staleness staleness;
  staleness.pushes = 10;
  staleness.mean = 1.5;
  staleness.p99 = 4;
  servers[0].described.__set_staleness(staleness);
  for (size_t i = 0; i < 2; ++i) {
    servers[i].why.workers = {Standing(0, 40, 0.1)};
    servers[i].why.workers[0].applied = 50;
    servers[i].why.workers[0].durable = i == 0 ? 50 : 38;
  }
  servers[1].why.workers[0].vitals.__set_loss(0.3125);
  servers[1].why.workers[0].seconds_since_seen = 0;
  StatusSample sample;
  const Answer answer = StatusAnswer(target, servers, absl::Seconds(10), nullptr, &sample);
  EXPECT_EQ(answer.json["servers"][0]["disk_bytes"], 3 << 20);
  EXPECT_EQ(answer.json["servers"][0]["staleness"]["p99"], 4);
  EXPECT_TRUE(answer.json["servers"][1]["staleness"].is_null());
  EXPECT_EQ(answer.json["servers"][0]["counters"]["snapshots"], 9);
  EXPECT_EQ(answer.json["servers"][0]["seconds_since_snapshot"], 2);
  EXPECT_EQ(answer.json["workers"][0]["durable_lag_pushes"], 12);
  EXPECT_EQ(answer.json["workers"][0]["loss"], 0.3125);
  EXPECT_EQ(answer.json["jobs"].dump(), "[\"large\",\"small\"]");
  for (const char* text : {"3 MiB", "9, 2.0s ago", "1.5 (99 %: 4)", "0.3125",
                           "other jobs on these servers: large\n"}) {
    EXPECT_TRUE(absl::StrContains(answer.text, text)) << text << " in\n" << answer.text;
  }
}

TEST(Status, AJobThatNoServerHasIsAnError) {
  Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 0), Answering(target, 1, 0)};
  for (ServerView& server : servers) {
    server.described.variables.clear();
    server.described.jobs = {"clicks", "cairnctl-jobs-vm-1", "films"};
  }
  target.job = "cliks";
  StatusSample sample;
  const auto problem = [&] {
    return StatusAnswer(target, servers, absl::Seconds(1), nullptr, &sample).problem;
  };
  EXPECT_THAT(problem(), StatusIs(absl::StatusCode::kNotFound,
                                  "the servers have no job 'cliks' (did you mean 'clicks'?); they "
                                  "have clicks, films"));
  target.job = "films";
  EXPECT_OK(problem());
  for (ServerView& server : servers) server.described.jobs.clear();  // the job may begin
  EXPECT_OK(problem());
  servers[0].described.jobs = {"clicks"};
  target.job = "cliks";
  servers[1] = Silent(target, 1);  // might have it
  EXPECT_THAT(problem().message(), ::testing::HasSubstr("does not answer"));
}

TEST(Status, ALossThatIsNoNumber) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 100), Answering(target, 1, 100)};
  for (const double loss : {-std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    servers[0].why.workers = {Standing(0, 40, 0.1)};
    servers[0].why.workers[0].vitals.__set_loss(loss);
    StatusSample sample;
    const Answer answer = StatusAnswer(target, servers, absl::Seconds(1), nullptr, &sample);
    EXPECT_TRUE(answer.json["workers"][0]["loss"].is_null());
    EXPECT_TRUE(nlohmann::json::accept(JsonLine(answer.json)));
    EXPECT_EQ(answer.text.find("-nan"), std::string::npos) << answer.text;
    const char* const shown = std::isnan(loss) ? " nan " : loss < 0 ? " -inf " : " inf ";
    EXPECT_TRUE(absl::StrContains(answer.text, shown)) << answer.text;
  }
}

TEST(Status, RatesAreThoseSinceTheSampleBefore) {
  const Target target = TwoServers();
  StatusSample first;
  std::vector<ServerView> servers = {Answering(target, 0, 100), Answering(target, 1, 100)};
  servers[0].why.workers = {Standing(0, 50, 0.1)};
  const Answer before = StatusAnswer(target, servers, absl::Seconds(10), nullptr, &first);
  EXPECT_FALSE(before.json["servers"][0].contains("pushes_per_second"));
  servers[0].described.counters["pushes"] = 300;
  servers[0].why.workers = {Standing(0, 60, 0.1)};
  StatusSample second;
  const Answer after = StatusAnswer(target, servers, absl::Seconds(12), &first, &second);
  EXPECT_EQ(after.json["servers"][0]["pushes_per_second"], 100);
  EXPECT_EQ(after.json["servers"][1]["pushes_per_second"], 0);
  EXPECT_EQ(after.json["workers"][0]["steps_per_second"], 5);
  EXPECT_TRUE(absl::StrContains(after.text, "100/s")) << after.text;
}

TEST(Status, ARestartedServerHasNoRateBelowZero) {
  const Target target = TwoServers();
  StatusSample first;
  StatusSample second;
  std::vector<ServerView> servers = {Answering(target, 0, 100), Answering(target, 1, 100)};
  StatusAnswer(target, servers, absl::Seconds(1), nullptr, &first);
  servers[0].described.counters["pushes"] = 3;
  const Answer answer = StatusAnswer(target, servers, absl::Seconds(2), &first, &second);
  EXPECT_FALSE(answer.json["servers"][0].contains("pushes_per_second"));
}

TEST(Status, AServerWithoutAnswerIsShownWithItsReasonBesideTheOthers) {
  const Target target = TwoServers();
  StatusSample sample;
  std::vector<ServerView> servers = {Answering(target, 0, 1), Silent(target, 1)};
  servers[0].why.workers = {Standing(0, 7, 0.5), Standing(1, 4, 12)};
  const Answer answer = StatusAnswer(target, servers, absl::Seconds(1), nullptr, &sample);
  EXPECT_EQ(answer.json["servers"][1]["state"], "no answer");
  EXPECT_EQ(answer.json["servers"][1]["error"], "refused");
  EXPECT_EQ(answer.json["variables"]["rows"], 4);
  EXPECT_EQ(answer.json["workers"][0]["worker"], "chief:0");
  EXPECT_EQ(answer.json["workers"][1]["steps_behind"], 3);
  EXPECT_EQ(answer.problem.message(), "ps:1 (b:2) does not answer: refused");
  EXPECT_TRUE(absl::StrContains(answer.text, "NO ANSWER")) << answer.text;
}

TEST(Workers, AreMergedFromAllServersByWhoHasSeenThemLast) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 1), Answering(target, 1, 1)};
  servers[0].why.workers = {Standing(1, 9, 5)};
  servers[1].why.workers = {Standing(0, 3, 1), Standing(1, 8, 2)};
  servers[1].why.workers[1].state = "finished";
  const std::vector<wire::WorkerStanding> workers = WorkersOf(servers);
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[0].worker, 0);
  EXPECT_EQ(workers[1].state, "finished");
  EXPECT_EQ(workers[1].step, 9);
}

TEST(Why, NamesWhoIsWaitedForAndWhatToDo) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 1), Answering(target, 1, 1)};
  for (ServerView& server : servers) {
    wire::WaitingCall call;
    call.worker = 0;
    call.waits_for = "step";
    call.seconds = 4;
    call.text = "worker 0 of job small waits for worker 1";
    call.missing = {Standing(1, 4, 5)};
    server.why.waiting = {call};
  }
  const Answer answer = WhyAnswer(target, servers);
  ASSERT_EQ(answer.json["waiting"].size(), 2U);
  EXPECT_EQ(answer.json["waiting"][0]["waiter"], "chief:0");
  ASSERT_EQ(answer.json["causes"].size(), 1U);
  EXPECT_EQ(answer.json["causes"][0]["worker"], "worker:0");
  EXPECT_EQ(answer.json["causes"][0]["waited_for_by"], 2);
  EXPECT_TRUE(absl::StrContains(answer.text, "4.0s at ps:0 (a:1), ps:1 (b:2): worker 0 of job"))
      << answer.text;
  EXPECT_TRUE(absl::StrContains(answer.text, "it is silent")) << answer.text;
}

TEST(Why, ASilentWorkerThatNobodyWaitsForIsNamedToo) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 1), Silent(target, 1)};
  servers[0].why.workers = {Standing(0, 4, 0.1), Standing(1, 4, 6)};
  const Answer answer = WhyAnswer(target, servers);
  EXPECT_TRUE(absl::StrContains(answer.text, "no call waits")) << answer.text;
  EXPECT_TRUE(absl::StrContains(answer.text, "worker:0: live at step 4, last seen 6.0s ago"))
      << answer.text;
  EXPECT_TRUE(absl::StrContains(answer.text, "no call waits for it")) << answer.text;
  EXPECT_EQ(answer.json["servers_without_answer"][0]["server"], "ps:1 (b:2)");
  EXPECT_FALSE(answer.problem.ok());
}

TEST(Why, AJobThatNoServerHasIsAnError) {
  Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 0), Answering(target, 1, 0)};
  for (ServerView& server : servers) {
    server.described.variables.clear();
    server.described.jobs = {"clicks"};
  }
  target.job = "cliks";
  EXPECT_THAT(WhyAnswer(target, servers).problem,
              StatusIs(absl::StatusCode::kNotFound, ::testing::HasSubstr("did you mean 'clicks'")));
  target.job = "clicks";
  EXPECT_OK(WhyAnswer(target, servers).problem);
}

TEST(Why, AServerThatRefusesIsNotToBeRestarted) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 1), Silent(target, 1)};
  EXPECT_TRUE(absl::StrContains(WhyAnswer(target, servers).text, "restart it"));
  servers[1].status = absl::UnauthenticatedError("give a token");
  const std::string text = WhyAnswer(target, servers).text;
  EXPECT_FALSE(absl::StrContains(text, "restart it")) << text;
  EXPECT_TRUE(absl::StrContains(text, "refuses this command: give a token")) << text;
}

TEST(Why, BeginsWithTheSentenceOnTheJobThatStatusHasToo) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 1), Silent(target, 1)};
  servers[1].index = 1;
  wire::WorkerStanding worker = Standing(0, 4, 0.1);
  worker.__isset.vitals = true;
  worker.vitals.__set_task("chief:0");
  worker.vitals.__set_servers_gone({1});
  servers[0].why.workers = {worker};
  const std::string sentence = "Stalled: ps:1 does not answer chief:0";
  const Answer why = WhyAnswer(target, servers);
  EXPECT_TRUE(absl::StartsWith(why.text, absl::StrCat(sentence, "\n"))) << why.text;
  EXPECT_EQ(why.json["sentence"], sentence);
  EXPECT_EQ(why.json["state"], "stalled");
  StatusSample sample;
  const Answer status = StatusAnswer(target, servers, absl::Seconds(1), nullptr, &sample);
  EXPECT_EQ(status.json["sentence"], sentence);
  EXPECT_TRUE(absl::StrContains(status.text, sentence)) << status.text;
}

TEST(Jobs, HaveALineEachAndCairnctlsOwnNone) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 1), Answering(target, 1, 1)};
  servers[0].described.jobs = {"ads", "cairnctl-bench-host-1"};
  servers[1].described.jobs = {"books"};
  EXPECT_EQ(JobNames(servers), (std::vector<std::string>{"ads", "books"}));
  servers[0].why.workers = {Standing(0, 7, 0.5), Standing(1, 4, 12)};
  const Answer answer = JobsAnswer({{"ads", servers}}, absl::OkStatus());
  const auto& job = answer.json["jobs"][0];
  EXPECT_EQ(job["rows"], 8);
  EXPECT_EQ(job["workers"], 2);
  EXPECT_EQ(job["step"], 7);
  EXPECT_EQ(job["seconds_since_seen"], 0.5);
  EXPECT_TRUE(absl::StrContains(answer.text, "0.5s ago")) << answer.text;
}

TEST(Jobs, NoAnswerIsNotTheAnswerThatThereIsNone) {
  EXPECT_EQ(JobsAnswer({}, absl::OkStatus()).text, "the servers have no job\n");
  const Answer silent = JobsAnswer({}, absl::UnavailableError("ps:0 does not answer"));
  EXPECT_EQ(silent.text, "no server that answers has a job\n");
  EXPECT_FALSE(silent.problem.ok());
}

TEST(Launch, ALineOfProgressHasTheSpeedSinceTheLineBefore) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 1)};
  wire::WorkerStanding worker = Standing(0, 1200, 0.1);
  worker.__isset.vitals = true;
  worker.vitals.__set_examples(1000);
  worker.vitals.__set_loss(0.4512);
  worker.vitals.__set_share_done(0.155);
  worker.vitals.__set_seconds_left(185);
  servers[0].why.workers = {worker};
  LaunchSample sample;
  ProgressLine(servers, absl::Seconds(10), &sample);
  servers[0].why.workers[0].vitals.__set_examples(421000);
  EXPECT_EQ(ProgressLine(servers, absl::Seconds(20), &sample),
            "Training: step 1200, 15 % done, 3 min left; 42000 rows/s, loss 0.4512");
}

TEST(Launch, IsReadyWhenEveryWorkerHasJoinedNotWhenServersRememberThem) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 1)};
  servers[0].why.workers = {Standing(0, 0, 0.1), Standing(1, 5, 0)};
  servers[0].why.workers[1].state = "returning";
  EXPECT_FALSE(HaveJoined(servers, 2));
  servers[0].why.workers[1].state = "live";
  EXPECT_TRUE(HaveJoined(servers, 2));
  // A worker that left or was lost may be of an earlier launch, which its record does not name, or
  // of this one.
  for (const char* const state : {"left", "lost"}) {
    servers[0].why.workers[1].state = state;
    servers[0].why.workers[1].origin.clear();
    EXPECT_FALSE(HaveJoined(servers, 2)) << state;
    servers[0].why.workers[1].origin = "host/7";
    EXPECT_TRUE(HaveJoined(servers, 2)) << state;
  }
}

TEST(Inspect, AVariableIsTheSumOfItsShards) {
  const Target target = TwoServers();
  const std::vector<ServerView> servers = {Answering(target, 0, 1), Answering(target, 1, 1)};
  const Answer answer = InspectAnswer(target, servers, {"ker*"});
  ASSERT_EQ(answer.json["variables"].size(), 1U);
  const auto& kernel = answer.json["variables"][0];
  EXPECT_EQ(kernel["rows"], 8);
  EXPECT_EQ(kernel["memory_bytes"], 1024);
  EXPECT_EQ(kernel["lowest_version"], 10);
  EXPECT_EQ(kernel["highest_version"], 11);
  EXPECT_EQ(kernel["shards"][1]["server"], "ps:1 (b:2)");
  EXPECT_TRUE(absl::StrContains(answer.text, "10-11")) << answer.text;
  const Answer none = InspectAnswer(target, servers, {"ker*", "bias"});
  EXPECT_EQ(none.json["variables"].size(), answer.json["variables"].size());
  EXPECT_EQ(none.problem.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(none.problem.message(), "no variable is named 'bias'"));
  EXPECT_FALSE(kernel.contains("row_figures"));
  EXPECT_FALSE(absl::StrContains(answer.text, "hit rate")) << answer.text;
}

TEST(Inspect, WhatBecameOfATablesKeysIsTheSumOverItsServers) {
  const Target target = TwoServers();
  std::vector<ServerView> servers = {Answering(target, 0, 1), Answering(target, 1, 1)};
  for (ServerView& server : servers) {
    wire::VariableInfo& info = server.described.variables[0];
    info.spec.name = "emb";
    info.spec.kind = wire::VariableKind::EMBEDDING;
    info.spec.shape = {4};
    info.spec.row_rules.admit_after_pushes = 2;
    info.spec.row_storage.values = wire::RowFormat::BFLOAT16;
    wire::RowFigures figures;
    figures.found = 45;
    figures.loaded = 5;
    figures.absent = 7;
    figures.evicted = 8;
    figures.not_admitted = 6;
    figures.expired = 1;
    figures.crowded_out = 2;
    info.shards[0].__set_row_figures(figures);
    info.shards[0].rows_in_memory = 3;
    wire::RowCensus census;
    for (const int64_t least : {0, 1, 4}) {
      census.by_age.emplace_back();
      census.by_age.back().least = least;
      census.by_age.back().rows = 100 + least;
      census.by_use.push_back(census.by_age.back());
    }
    info.shards[0].__set_row_census(census);
  }
  const Answer answer = InspectAnswer(target, servers, {"emb"});
  const auto& table = answer.json["variables"][0];
  EXPECT_EQ(table["row_rules"]["admit_after_pushes"], 2);
  EXPECT_EQ(table["row_storage"]["values"], "bfloat16");
  EXPECT_EQ(table["row_storage"]["slots"], "float32");
  EXPECT_EQ(table["row_figures"]["in_memory"], 6);
  EXPECT_EQ(table["row_figures"]["found"], 90);
  EXPECT_EQ(table["row_figures"]["not_admitted"], 12);
  EXPECT_EQ(table["row_figures"]["expired"], 2);
  EXPECT_EQ(table["row_figures"]["crowded_out"], 4);
  EXPECT_EQ(table["row_figures"]["hit_rate"], 0.9);
  EXPECT_EQ(table["row_figures"]["by_age"][2]["least"], 4);
  EXPECT_EQ(table["row_figures"]["by_age"][2]["rows"], 208);
  EXPECT_EQ(table["row_figures"]["by_use"][0]["rows"], 200);
  EXPECT_TRUE(absl::StrContains(answer.text, "  table  0    1-3  4 or more")) << answer.text;
  EXPECT_TRUE(absl::StrContains(answer.text, "  emb    200  202  208")) << answer.text;
  EXPECT_TRUE(absl::StrContains(answer.text, "0.900")) << answer.text;
  EXPECT_TRUE(absl::StrContains(answer.text, "not admitted")) << answer.text;
}

}  // namespace
}  // namespace cairn
