// Whole runs over real servers in this process: a run that is stopped and continued ends like an
// uninterrupted one, finished jobs continue, workers wait for each other, and every mode and option
// of the trainer has its documented effect.
#include "worker/trainer/run/trainer.h"
#include "tests/support/file_text.h"

#include <atomic>
#include <cmath>
#include <fstream>
#include <iterator>
#include <thread>

#include "common/exit_status.h"
#include "common/timeline.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/worker/trainer/engines.h"
#include "tests/worker/trainer/linear_rows.h"
#include "thrift/ParameterServer.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"
#include "worker/trainer/reports/run_meter.h"
#include "worker/trainer/steps/roster.h"

namespace cairn::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRows = 1000;
constexpr int64_t kColumns = 8;

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteLinearRows(folder_.Join("rows.libsvm"), kRows, kColumns);
    JobConfig& job = options_.job = LinearJob(folder_.Join("rows.libsvm"), kColumns);
    job.data.epochs = 2;
    job.data.shuffle_buffer_rows = 100;
    job.optimizer.type = "adam";
    options_.stop_requested = [] { return false; };
  }

  Report Train(Engines& engines) {
    const absl::StatusOr<Report> report = RunTraining(options_, engines.connector());
    EXPECT_OK(report);
    return report.value_or(Report());
  }

  static std::vector<float> Kernel(Engines& engines, int64_t columns = kColumns) {
    const auto client = engines.Connect("j", -1);
    EXPECT_OK(client->Describe(Deadline::In(absl::Seconds(20))));
    std::vector<float> kernel(static_cast<size_t>(columns));
    const PullTarget target{.variable = "kernel", .out = AsWritableBytes(absl::MakeSpan(kernel))};
    EXPECT_OK(client->Pull({target}, Deadline::In(absl::Seconds(20))));
    return kernel;
  }

  // Stops after `steps` more steps. Copies of the function share the count.
  void StopAfter(int64_t steps) {
    auto asked = std::make_shared<int64_t>(0);
    options_.stop_requested = [steps, asked] { return ++*asked >= steps; };
  }

  TempDir folder_;
  TrainerOptions options_;
};

TEST_F(TrainerTest, LearnsAndReports) {
  Engines engines(1);
  const Report report = Train(engines);
  EXPECT_EQ(report.status, "completed");
  EXPECT_EQ(report.steps, 40);
  EXPECT_EQ(report.total_steps, 40);
  EXPECT_EQ(report.examples, 2 * kRows);
  EXPECT_GT(report.seconds, 0);
  ASSERT_TRUE(report.eval.has_value());
  EXPECT_EQ(report.eval->rows, kRows);
  EXPECT_GT(*report.eval->auc, 0.95);
  EXPECT_GT(report.counters.bytes_pushed, 40 * kColumns * 4);
}

TEST_F(TrainerTest, ValuesTravelInEachFormatAndTheModelLearnsAllTheSame) {
  options_.job.data.epochs = 4;
  Engines plain_engines(2);
  const Report plain = Train(plain_engines);
  for (const char* consistency : {"async", "sync"}) {
    options_.job.strategy.consistency = consistency;
    for (const char* push : {"float16", "bfloat16", "int8", "top_k"}) {
      SCOPED_TRACE(absl::StrCat(consistency, " ", push));
      WireFormatConfig& format = options_.job.strategy.wire.format;
      format.push = push;
      format.pull = format.push == "top_k" ? "int8" : push;
      format.top_k_fraction = 0.25;
      Engines engines(2);
      const Report report = Train(engines);
      EXPECT_EQ(report.total_steps, plain.total_steps);
      EXPECT_LT(report.counters.bytes_pushed, plain.counters.bytes_pushed);
      EXPECT_LT(report.counters.bytes_pulled, plain.counters.bytes_pulled);
      ASSERT_TRUE(report.eval.has_value());
      EXPECT_NEAR(*report.eval->auc, *plain.eval->auc, 0.01);
      EXPECT_NE(Kernel(engines), Kernel(plain_engines));
    }
  }
}

TEST_F(TrainerTest, FormatsAreChosenByVariable) {
  options_.job.strategy.wire.per_variable = {{.match = "b*", .format = {}}};
  options_.job.strategy.wire.format = {.push = "float16", .pull = "float16"};
  options_.job.data.max_steps = 10;
  Engines engines(1);
  const Report report = Train(engines);
  // The kernel's eight values in two bytes each, the bias plain; the roster's part is small.
  EXPECT_GE(report.counters.bytes_pushed, 10 * (kColumns * 2 + 4));
  EXPECT_LT(report.counters.bytes_pushed, 10 * (kColumns * 4 + 4));
}

// Pulled whole, or by rows if there are many columns. Each step changes every value that it pulls
// whole.
TEST_F(TrainerTest, DeltaPullsChangeNothingButBytes) {
  options_.job.data.epochs = 2;
  for (const int64_t features : {int64_t{kColumns}, int64_t{50 * 4}, int64_t{5000}}) {
    for (const int64_t pull_ahead : {0, 2}) {
      for (const char* consistency : {"async", "sync"}) {
        if (pull_ahead > 0 && std::string(consistency) == "sync") continue;
        SCOPED_TRACE(absl::StrCat(features, " ", pull_ahead, " ", consistency));
        options_.job.data.features = features;
        options_.job.strategy.consistency = consistency;
        options_.job.strategy.pull_ahead_steps = pull_ahead;
        options_.job.strategy.wire.format.delta_pulls = false;
        Engines plain_engines(2), delta_engines(2);
        const Report plain = Train(plain_engines);
        options_.job.strategy.wire.format.delta_pulls = true;
        const Report delta = Train(delta_engines);
        EXPECT_EQ(delta.total_steps, plain.total_steps);
        EXPECT_EQ(delta.eval->log_loss, plain.eval->log_loss);
        EXPECT_EQ(Kernel(delta_engines, features), Kernel(plain_engines, features));
        EXPECT_LE(delta.counters.bytes_pulled, plain.counters.bytes_pulled);
      }
    }
  }
}

TEST_F(TrainerTest, AStoppedRunContinuedEqualsOneThatNeverStopped) {
  Engines whole(2);
  Train(whole);
  Engines parts(2);
  int64_t steps = 0;
  for (int start = 0; start < 50 && steps < 40; ++start) {
    StopAfter(1 + start * 3);
    const Report report = Train(parts);
    EXPECT_EQ(report.total_steps, steps + report.steps);
    if (report.total_steps < 40) {
      EXPECT_EQ(report.status, "interrupted");
    }
    steps = report.total_steps;
  }
  EXPECT_EQ(steps, 40);
  EXPECT_EQ(Kernel(parts), Kernel(whole));
}

// A worker that was killed after its last step is restarted, perhaps by a supervisor: it finds the
// job's totals reached.
TEST_F(TrainerTest, AFinishedJobIsEvaluatedAndTrainsMoreWhenAskedAndFreshStartsOver) {
  Engines engines(1);
  const Report trained = Train(engines);
  EXPECT_EQ(trained.total_steps, 40);
  const std::vector<float> first = Kernel(engines);
  const Report again = Train(engines);
  EXPECT_EQ(again.status, "completed");
  EXPECT_EQ(again.steps, 0);
  EXPECT_EQ(again.total_steps, 40);
  EXPECT_EQ(again.eval->log_loss, trained.eval->log_loss);
  EXPECT_EQ(Kernel(engines), first);
  options_.trains_more = true;
  EXPECT_EQ(Train(engines).total_steps, 80);
  EXPECT_NE(Kernel(engines), first);
  options_.trains_more = false;
  options_.job.data.epochs = 5;
  EXPECT_EQ(Train(engines).total_steps, 100);
  options_.job.data.epochs = 2;
  options_.fresh = true;
  EXPECT_EQ(Train(engines).total_steps, 40);
  EXPECT_EQ(Kernel(engines), first);
}

TEST_F(TrainerTest, MaxStepsIsATotalAndALargerOneGoesOnAtTheSameRow) {
  Engines whole(1), engines(1);
  Train(whole);
  options_.job.data.max_steps = 7;
  EXPECT_EQ(Train(engines).total_steps, 7);
  EXPECT_EQ(Train(engines).total_steps, 7);
  // After an early stop, the rest of the run's steps remain.
  options_.job.data.max_steps = 14;
  StopAfter(3);
  EXPECT_EQ(Train(engines).total_steps, 10);
  options_.stop_requested = [] { return false; };
  EXPECT_EQ(Train(engines).total_steps, 14);
  options_.job.data.max_steps = 0;
  EXPECT_EQ(Train(engines).total_steps, 40);
  EXPECT_EQ(Kernel(engines), Kernel(whole));
}

TEST_F(TrainerTest, ContinuedWithMaxStepsAFinishedJobTakesSoManyMore) {
  Engines engines(1);
  options_.job.data.max_steps = 7;
  options_.trains_more = true;
  EXPECT_EQ(Train(engines).total_steps, 7);
  EXPECT_EQ(Train(engines).total_steps, 14);
  StopAfter(3);
  EXPECT_EQ(Train(engines).total_steps, 17);
  options_.stop_requested = [] { return false; };
  EXPECT_EQ(Train(engines).total_steps, 21);
}

// A restore that ended after the other servers had their parts and before ps:0 had its part.
TEST_F(TrainerTest, WhatARestoreThatWasCutShortHasLeftIsDroppedOrMadeWhole) {
  const std::string directory = folder_.Join("checkpoints");
  options_.job.checkpoint.directory = directory;
  Engines before(2);
  const Report trained = Train(before);
  const absl::StatusOr<CheckpointFolders> made = ListCheckpoints(directory, "j");
  ASSERT_OK(made);
  ASSERT_EQ(made->finished.size(), 1u);
  const CheckpointManifest& manifest = made->finished.front();
  wire::RestoreRequest request;
  request.caller.job = "j";
  request.timeline = NewTimeline(2, manifest.timeline);
  for (const ServerCheckpoint& part : manifest.servers) {
    wire::RestoreFolder& folder = request.folders.emplace_back();
    folder.path = absl::StrCat(directory, "/", manifest.name, "/ps-", part.server);
    for (const CheckpointFile& file : part.files) {
      wire::CheckpointFile& sum = folder.files.emplace_back();
      sum.name = file.name;
      sum.bytes = file.bytes;
      sum.checksum = static_cast<int64_t>(file.checksum);
    }
  }
  for (const bool anew : {true, false}) {
    Engines engines(2);
    wire::RestoreReply reply;
    engines.service(1).restore(reply, request);
    EXPECT_THAT(
        engines.Connect("j", -1)->Describe(Deadline::In(absl::Seconds(20))),
        StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ps:0 (in process) holds nothing")));
    options_.job.checkpoint.restore = anew ? "none" : "latest";
    const Report report = Train(engines);
    EXPECT_EQ(report.steps, anew ? 40 : 0);
    EXPECT_EQ(report.total_steps, 40);
    EXPECT_EQ(report.eval->log_loss, trained.eval->log_loss);
  }
}

TEST_F(TrainerTest, TwoWorkersShareTheRowsAndTheFirstEvaluatesAfterBoth) {
  Engines engines(2);
  options_.workers = 2;
  for (const bool fresh : {false, true, false}) {
    options_.fresh = fresh;
    options_.trains_more = true;
    absl::StatusOr<Report> reports[2];
    std::vector<std::thread> threads;
    for (int32_t worker = 0; worker < 2; ++worker) {
      threads.emplace_back([&, worker] {
        TrainerOptions mine = options_;
        mine.worker = worker;
        mine.task = absl::StrCat("worker:", worker);
        reports[worker] = RunTraining(mine, engines.connector());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& report : reports) {
      ASSERT_OK(report);
      EXPECT_EQ(report->examples, kRows);
      EXPECT_EQ(report->steps, 20);
    }
    EXPECT_TRUE(reports[0]->eval.has_value());
    EXPECT_GT(*reports[0]->eval->auc, 0.9);
    EXPECT_FALSE(reports[1]->eval.has_value());
    EXPECT_EQ(reports[0]->total_steps, fresh || reports[0]->total_steps == 20 ? 20 : 40);
  }
}

// A step may wait for a server, or compute, for longer than workers may be silent.
TEST_F(TrainerTest, AWorkerSendsHeartbeatsWhileAStepLasts) {
  for (const char* consistency : {"async", "ssp"}) {
    Engines engines(2);
    const auto onlooker = engines.Connect("j", -1);
    options_.job.strategy.consistency = consistency;
    options_.workers = 2;
    options_.worker = 1;
    bool beat = false;
    options_.stop_requested = [&] {
      const Deadline deadline = Deadline::In(absl::Seconds(20));
      const auto specs = onlooker->Describe(deadline);
      if (!specs.ok() || !HasRoster(*specs)) return false;
      const auto beats = [&] {
        const auto rows = ReadRoster(*onlooker, 2, deadline);
        return rows.ok() ? (*rows)[1].beats : 0;
      };
      const int64_t before = beats();
      while (beats() == before && !deadline.Expired()) continue;
      beat = beats() != before;
      return true;
    };
    Train(engines);
    EXPECT_TRUE(beat) << consistency;
  }
}

TEST_F(TrainerTest, SynchronousWorkersThatNobodyCouldClipAreRefused) {
  Engines engines(1);
  options_.job.strategy.consistency = "sync";
  options_.job.optimizer.global_clipnorm = 1;
  options_.workers = 2;
  options_.worker = 1;
  const absl::Status refused = RunTraining(options_, engines.connector()).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("global_clipnorm")));
  EXPECT_EQ(ExitCodeOf(refused), 2);
  options_.workers = 1;
  options_.worker = 0;
  Engines of_one(1);
  EXPECT_EQ(Train(of_one).steps, 40);
}

TEST_F(TrainerTest, AWorkerWithoutRowsFinishesToo) {
  Engines engines(1);
  options_.workers = 2;
  options_.worker = 1;
  std::ofstream(folder_.Join("one.libsvm")) << "1 1:1\n";
  options_.job.data.train = {{folder_.Join("one.libsvm"), ""}};
  EXPECT_EQ(Train(engines).steps, 0);
  options_.worker = 0;
  EXPECT_EQ(Train(engines).steps, 2);
}

TEST_F(TrainerTest, PullAheadTrainsAllTheSame) {
  Engines engines(2);
  options_.job.strategy.pull_ahead_steps = 3;
  const Report report = Train(engines);
  EXPECT_EQ(report.steps, 40);
  EXPECT_GT(*report.eval->auc, 0.9);
}

TEST_F(TrainerTest, MetricsFileHasALineAStepAndEvaluationsBetween) {
  Engines engines(1);
  options_.job.evaluation.every_steps = 20;
  options_.job.output.metrics_file = folder_.Join("m.jsonl");
  StopAfter(30);
  Train(engines);
  options_.stop_requested = [] { return false; };
  Train(engines);
  std::ifstream in(folder_.Join("m.jsonl"));
  int64_t steps = 0;
  int64_t evaluations = 0;
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json.contains("eval")) {
      ++evaluations;
      EXPECT_EQ(json["step"], 20);
      EXPECT_EQ(json["eval"]["rows"], kRows);
      continue;
    }
    EXPECT_EQ(json["step"], ++steps);
    EXPECT_EQ(json["examples"], 50);
    EXPECT_TRUE(json["loss"].is_number());
  }
  EXPECT_EQ(steps, 40);
  EXPECT_EQ(evaluations, 1);
}

// The stop is requested during an evaluation, or in the step before one.
TEST_F(TrainerTest, ARunThatIsStoppedAtAnEvaluationReportsItsSteps) {
  options_.job.evaluation.every_steps = 1;
  for (const int64_t asked : {2, 3}) {
    Engines engines(1);
    StopAfter(asked);
    const Report report = Train(engines);
    EXPECT_EQ(report.status, "interrupted");
    EXPECT_EQ(report.steps, asked - 1);
    EXPECT_EQ(report.total_steps, report.steps);
    EXPECT_TRUE(report.train_loss.has_value());
    options_.stop_requested = [] { return false; };
    EXPECT_EQ(Train(engines).steps, 40 - report.steps);
  }
}

TEST_F(TrainerTest, EachOfSeveralWorkersWritesAMetricsFileOfItsOwn) {
  const auto lines = [&](const std::string& name) {
    std::ifstream in(folder_.Join(name));
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  };
  options_.job.data.max_steps = 4;
  options_.workers = 2;
  options_.worker = 1;
  options_.task = "worker:1";
  for (const bool own : {false, true}) {
    Engines engines(1);
    options_.own_metrics_file = own;
    options_.job.output.metrics_file = folder_.Join(own ? "own.jsonl" : "m.jsonl");
    EXPECT_EQ(Train(engines).metrics_file,
              own ? options_.job.output.metrics_file : folder_.Join("m.worker-1.jsonl"));
  }
  EXPECT_EQ(lines("m.worker-1.jsonl"), 4);
  EXPECT_EQ(lines("own.jsonl"), 4);
  EXPECT_EQ(lines("m.jsonl"), 0);
}

TEST_F(TrainerTest, EvaluatesAndPredictsWhatIsOnTheServers) {
  Engines engines(2);
  const Report trained = Train(engines);
  const absl::StatusOr<Report> evaluated = RunEvaluation(options_, engines.connector());
  ASSERT_OK(evaluated);
  EXPECT_EQ(*evaluated->eval->auc, *trained.eval->auc);
  EXPECT_EQ(evaluated->steps, 0);
  const std::string path = folder_.Join("predictions");
  ASSERT_OK(RunPrediction(options_, path, engines.connector()));
  std::ifstream in(path);
  int64_t rows = 0;
  for (double p; in >> p; ++rows) EXPECT_TRUE(p >= 0 && p <= 1);
  EXPECT_EQ(rows, kRows);
}

TEST_F(TrainerTest, EvaluationOfWhatWasNeverTrainedIsRefused) {
  Engines engines(1);
  EXPECT_THAT(RunEvaluation(options_, engines.connector()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("train it first")));
  Train(engines);
  options_.job.data.features = 5;
  EXPECT_THAT(RunEvaluation(options_, engines.connector()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has shape [8, 1]")));
}

TEST_F(TrainerTest, AChangedJobFileIsRefusedWithAWayOut) {
  Engines engines(1);
  Train(engines);
  options_.job.optimizer.type = "sgd";
  EXPECT_THAT(RunTraining(options_, engines.connector()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("--fresh")));
}

TEST_F(TrainerTest, MalformedRowsAreTheFilesFaultAndKeepWhatWasPushed) {
  Engines engines(1);
  const std::string good = FileText(folder_.Join("rows.libsvm"));
  std::ofstream(folder_.Join("bad.libsvm")) << good << "1 1:x\n";
  options_.job.data.train = {{folder_.Join("bad.libsvm"), ""}};
  options_.job.data.shuffle_buffer_rows = 0;
  const absl::StatusOr<Report> report = RunTraining(options_, engines.connector());
  EXPECT_THAT(report, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("bad.libsvm:1001:5: found 'x'")));
  EXPECT_EQ(ExitCodeOf(report.status()), 2);
  std::ofstream(folder_.Join("bad.libsvm")) << good;
  const Report mended = Train(engines);
  EXPECT_EQ(mended.total_steps, 40);
  EXPECT_LT(mended.steps, 40);
}

// Heartbeats carry the progress; the run ends when the server has received it.
TEST_F(TrainerTest, TheServersHearHowFarTheRunIs) {
  Engines engines(1);
  RunMeter meter("j", "worker:0");
  options_.meter = &meter;
  options_.job.data.eval.clear();
  options_.job.data.epochs = 1'000'000;
  wire::WorkerVitals heard;
  const Deadline deadline = Deadline::In(absl::Seconds(60));
  options_.stop_requested = [&] {
    wire::WhyReply reply;
    wire::Caller caller;
    caller.job = "j";
    engines.service(0).why(reply, caller);
    for (const wire::WorkerStanding& worker : reply.workers) heard = worker.vitals;
    return heard.__isset.seconds_left || deadline.Expired();
  };
  Train(engines);
  ASSERT_TRUE(heard.__isset.share_done);
  EXPECT_GT(heard.share_done, 0);
  EXPECT_LT(heard.share_done, 0.5);
  ASSERT_TRUE(heard.__isset.seconds_left);
  EXPECT_GT(heard.seconds_left, 0);
  const TrainingVitals vitals = meter.vitals();
  EXPECT_GE(vitals.share_done.value_or(0), heard.share_done);
}

TEST_F(TrainerTest, AFinishedRunIsAllDone) {
  Engines engines(1);
  RunMeter meter("j", "worker:0");
  options_.meter = &meter;
  Train(engines);
  EXPECT_EQ(meter.vitals().share_done, 1);
  EXPECT_EQ(meter.vitals().seconds_left, 0);
}

TEST_F(TrainerTest, ARateThatIsFarTooLargeEndsTheRunWithTheReason) {
  options_.job.optimizer.type = "sgd";
  options_.job.optimizer.learning_rate = ConstantRate(1e30);
  // Contradictory rows.
  std::ofstream rows(folder_.Join("rows.libsvm"));
  for (int64_t i = 0; i < kRows; ++i) rows << i % 3 % 2 << " 1:0.5 2:" << i % 7 << "\n";
  rows.close();
  Engines engines(1);
  const absl::StatusOr<Report> report = RunTraining(options_, engines.connector());
  EXPECT_THAT(report,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("training diverged")));
  EXPECT_EQ(ExitCodeOf(report.status()), 1);
  // Its last push was never sent, so the run is not finished.
  options_.job.divergence = "ignore";
  EXPECT_EQ(Train(engines).total_steps, 40);
}

TEST_F(TrainerTest, GradientsThatAreNotFiniteFailOrAreSkipped) {
  std::ofstream(folder_.Join("huge.libsvm")) << "1 1:1\n0 1:3e38 2:3e38\n0 1:3e38 2:3e38\n1 1:1\n";
  options_.job.data.train = {{folder_.Join("huge.libsvm"), ""}};
  options_.job.data.eval.clear();
  options_.job.data.shuffle_buffer_rows = 0;
  options_.job.data.batch_size = 2;
  options_.job.model.loss = "mean_squared_error";
  Engines engines(1);
  EXPECT_THAT(RunTraining(options_, engines.connector()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("training diverged: the loss is inf at step 2")));
  options_.job.divergence = "ignore";
  EXPECT_THAT(RunTraining(options_, engines.connector()),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  options_.job.divergence = "stop";
  options_.job.not_finite = "skip";
  options_.fresh = true;
  const Report report = Train(engines);
  EXPECT_EQ(report.steps, 4);
  EXPECT_GT(report.counters.pushes_dropped, 0);
  options_.fresh = false;
  EXPECT_EQ(Train(engines).steps, 0);  // the end of the run was announced although its push was
                                       // dropped
}

// The last steps before the end are dropped while they are in flight, and the last one is not.
TEST_F(TrainerTest, WithPullAheadADroppedPushBeforeTheLastDoesNotEndTheRunTwice) {
  std::ofstream rows(folder_.Join("huge.libsvm"));
  for (int i = 0; i < 20; ++i) rows << "5 1:3e38 2:3e38\n";
  rows << "1 1:1\n";
  rows.close();
  options_.job.data.train = {{folder_.Join("huge.libsvm"), ""}};
  options_.job.data.eval.clear();
  options_.job.data.shuffle_buffer_rows = 0;
  options_.job.data.batch_size = 1;
  options_.job.data.epochs = 1;
  options_.job.model.loss = "mean_squared_error";
  options_.job.not_finite = "skip";
  options_.job.divergence = "ignore";
  options_.job.strategy.pull_ahead_steps = 8;
  for (int i = 0; i < 10; ++i) {
    Engines engines(1);
    const Report report = Train(engines);
    EXPECT_EQ(report.steps, 21);
    EXPECT_EQ(report.counters.pushes_dropped, 20);
    const auto onlooker = engines.Connect("j", -1);
    const Deadline deadline = Deadline::In(absl::Seconds(20));
    ASSERT_OK(onlooker->Describe(deadline));
    const auto roster = ReadRoster(*onlooker, 1, deadline);
    ASSERT_OK(roster);
    EXPECT_EQ(roster->front().runs_finished, 1);
  }
}

}  // namespace
}  // namespace cairn::test
