// The sentence about a job's state: what operators must see first in each situation, whichever
// server is asked.
#include "thrift/job_state.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace cairn {
namespace {

wire::WorkerStanding Worker(const std::string& state, double seconds_since_seen, bool tells) {
  wire::WorkerStanding worker;
  worker.state = state;
  worker.seconds_since_seen = seconds_since_seen;
  if (tells) worker.__set_vitals({});
  return worker;
}

// worker:`ordinal`, live and heard from.
wire::WorkerStanding Live(int32_t ordinal, int64_t step) {
  wire::WorkerStanding worker = Worker("live", 0.1, true);
  worker.worker = ordinal;
  worker.step = step;
  worker.vitals.__set_task("worker:" + std::to_string(ordinal));
  return worker;
}

wire::WorkerStanding WithProgress(wire::WorkerStanding worker, double share, double seconds_left) {
  worker.vitals.__set_share_done(share);
  worker.vitals.__set_seconds_left(seconds_left);
  return worker;
}

wire::WorkerStanding WithoutServer(wire::WorkerStanding worker, int32_t server) {
  worker.vitals.__set_servers_gone({server});
  return worker;
}

std::string Sentence(const std::vector<JobView>& servers) { return StateOf(servers).Sentence(); }
std::string Sentence(const std::vector<wire::WorkerStanding>& workers) {
  return Sentence(std::vector<JobView>{{.workers = workers}});
}

TEST(Workers, AreMissingLongBeforeTheirLeaseEnds) {
  EXPECT_FALSE(IsMissing(Worker("live", kMissingSeconds, true)));
  EXPECT_TRUE(IsMissing(Worker("live", kMissingSeconds + 0.1, true)));
  EXPECT_TRUE(IsMissing(Worker("finished", kMissingSeconds + 0.1, true)));
  EXPECT_TRUE(IsMissing(Worker("lost", 0, false)));
}

TEST(Workers, ThatHaveLeftOrSendNoVitalsAreNotMissing) {
  EXPECT_FALSE(IsMissing(Worker("left", 100, true)));
  EXPECT_FALSE(IsMissing(Worker("returning", 100, true)));
  EXPECT_FALSE(IsMissing(Worker("live", 5, false)));
}

TEST(Workers, TheLossIsTheMeanOfThoseNotMissing) {
  std::vector<wire::WorkerStanding> workers = {Worker("live", 0, true), Worker("live", 0, true),
                                               Worker("live", kMissingSeconds + 1, true),
                                               Worker("left", 0, true), Worker("live", 0, false)};
  EXPECT_EQ(MeanLoss(workers), std::nullopt);
  double loss = 1;
  for (wire::WorkerStanding& worker : workers) worker.vitals.__set_loss(loss *= 2);
  EXPECT_EQ(MeanLoss(workers), 3.0);
}

TEST(JobState, TrainingHasTheStepAndTheProgressOfTheSlowestWorker) {
  EXPECT_EQ(Sentence({Live(0, 40), Live(1, 30)}), "Training: step 40");
  EXPECT_EQ(
      Sentence({WithProgress(Live(0, 1200), 0.2, 100), WithProgress(Live(1, 1100), 0.155, 185)}),
      "Training: step 1200, 15 % done, 3 min left");
  EXPECT_EQ(Sentence({WithProgress(Live(0, 7820), 1, 0)}), "Training: step 7820, 100 % done");
}

TEST(JobState, AServerThatNoWorkerReachesStallsTheJobWhicheverServerIsAsked) {
  const std::vector<wire::WorkerStanding> workers = {WithoutServer(Live(0, 7), 1),
                                                     WithoutServer(Live(1, 7), 1)};
  const std::string expected = "Stalled: ps:1 does not answer worker:0, worker:1";
  EXPECT_EQ(Sentence(workers), expected);
  // Asked together with the silent server and another one.
  EXPECT_EQ(Sentence({{.server = 0, .workers = workers},
                      {.server = 1, .status = absl::UnavailableError("refused")},
                      {.server = 2, .workers = workers}}),
            expected);
  JobState state = StateOf({{.workers = workers}});
  EXPECT_EQ(state.phase, JobPhase::kStalled);
  state.seconds = 4.2;
  EXPECT_EQ(state.Sentence(), "Stalled 4 s: ps:1 does not answer worker:0, worker:1");
}

TEST(JobState, AServerWhoseAddressAnotherServerHasIsReportedSo) {
  wire::WorkerStanding worker = WithoutServer(Live(0, 7), 1);
  worker.vitals.__set_servers_replaced({1});
  EXPECT_EQ(Sentence({worker, WithoutServer(Live(1, 7), 1)}),
            "Stalled: ps:1 does not answer worker:0, worker:1 (another server answers at its "
            "address)");
}

TEST(JobState, AServerThatSomeWorkersReachIsNotAStall) {
  EXPECT_EQ(StateOf({{.workers = {WithoutServer(Live(0, 7), 1), Live(1, 7)}}}).phase,
            JobPhase::kWaiting);
  EXPECT_EQ(Sentence({{.server = 0, .workers = {Live(0, 7)}},
                      {.server = 1, .status = absl::UnavailableError("refused")}}),
            "Training: step 7; ps:1 does not answer");
}

TEST(JobState, AServerThatRefusesTheQuestionIsNotSilent) {
  EXPECT_EQ(Sentence({{.server = 0, .workers = {Live(0, 7)}},
                      {.server = 1, .status = absl::PermissionDeniedError("no role")}}),
            "Training: step 7");
}

TEST(JobState, AWaitForASilentWorkerIsAStallAndForASlowOneIsNot) {
  wire::WaitingCall call;
  call.worker = 0;
  call.waits_for = "step";
  call.seconds = 4;
  wire::WorkerStanding other = Live(1, 5);
  call.missing = {other};
  JobView view{.workers = {Live(0, 7), other}, .waiting = {call}};
  EXPECT_EQ(Sentence({view}), "Waiting 4 s: worker:0 waits for worker:1");
  view.workers[1].seconds_since_seen = 5;
  EXPECT_EQ(Sentence({view}), "Stalled 4 s: worker:0 waits for worker:1 (last seen 5 s ago)");
  // The merged replies give the same sentence if another server, at which no call waits, is asked
  // too.
  EXPECT_EQ(Sentence({{.server = 0, .workers = view.workers}, view}),
            "Stalled 4 s: worker:0 waits for worker:1 (last seen 5 s ago)");
  view.waiting[0].seconds = 0.5;
  EXPECT_EQ(Sentence({view}), "Training: step 7; without worker:1 (last seen 5 s ago)");
}

TEST(JobState, AWaitForTheDiskNamesTheServer) {
  wire::WaitingCall call;
  call.worker = 0;
  call.waits_for = "epoch";
  call.seconds = 3;
  EXPECT_EQ(Sentence({{.server = 2, .workers = {Live(0, 7)}, .waiting = {call}}}),
            "Waiting 3 s: worker:0 waits for a snapshot at ps:2");
}

TEST(JobState, AWaitForAMoveOfRowsIsNotTakenForOneForWorkers) {
  wire::WaitingCall call;
  call.worker = -1;
  call.waits_for = "move";
  call.seconds = 3;
  EXPECT_EQ(Sentence({{.server = 2, .workers = {Live(0, 7)}, .waiting = {call}}}),
            "Waiting 3 s: a call at ps:2 waits for another step of a move of rows at ps:2");
}

TEST(JobState, TheBeginningAndTheEndOfAJob) {
  EXPECT_EQ(Sentence(std::vector<wire::WorkerStanding>()), "No workers: none has joined");
  wire::WorkerStanding expected = Worker("expected", 0, false);
  expected.worker = 1;
  EXPECT_EQ(Sentence({expected}), "Starting: waits for worker 1");
  wire::WorkerStanding done = WithProgress(Live(0, 7820), 1, 0);
  done.state = "left";
  EXPECT_EQ(Sentence({done}), "Finished: step 7820");
  // It left before its next heartbeat.
  done.vitals.__set_share_done(0.99);
  done.vitals.__set_seconds_left(0.3);
  EXPECT_EQ(Sentence({done}), "Finished: step 7820");
  wire::WorkerStanding ended = WithProgress(Live(0, 300), 0.25, 60);
  ended.state = "left";
  EXPECT_EQ(Sentence({ended}), "Stopped: step 300, 25 % done; every worker has left");
  wire::WorkerStanding lost = Live(0, 300);
  lost.state = "lost";
  lost.seconds_since_seen = 200;
  EXPECT_EQ(Sentence({lost}), "Stopped: step 300; lost: worker:0 (last seen 3 min ago)");
  wire::WorkerStanding silent = Live(0, 300);
  silent.seconds_since_seen = 4;
  EXPECT_EQ(Sentence({silent}), "Stalled 4 s: no worker is heard of: worker:0 (last seen 4 s ago)");
}

TEST(JobState, DurationsAreRounded) {
  EXPECT_EQ(RoughDuration(0), "0 s");
  EXPECT_EQ(RoughDuration(99.4), "99 s");
  EXPECT_EQ(RoughDuration(185), "3 min");
  EXPECT_EQ(RoughDuration(2 * 3600 + 300), "2 h 5 min");
  EXPECT_EQ(RoughDuration(3 * 86400 + 7200), "3 d 2 h");
}

}  // namespace
}  // namespace cairn
