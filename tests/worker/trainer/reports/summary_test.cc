// The final lines of a run name its work, its output files and the next step.
#include "worker/trainer/reports/summary.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

JobConfig Job() {
  JobConfig job;
  job.name = "clicks";
  job.model.type = "wide_deep";
  return job;
}

Report Trained() {
  return {.task = "worker:0",
          .steps = 1563,
          .total_steps = 1563,
          .examples = 1200000,
          .seconds = 12.5,
          .train_loss = 0.44631,
          .eval = Evaluation{.rows = 20000, .auc = 0.7953, .accuracy = 0.8}};
}

TEST(Summary, OfARunOfTheFirstWorker) {
  JobConfig job = Job();
  job.output.export_file = "model.npz";
  job.checkpoint.directory = "/tmp/c";
  Report report = Trained();
  report.metrics_file = "m.jsonl";
  report.exported = "model.npz";
  EXPECT_EQ(SummaryText(report, job, {}),
            "worker:0: trained job 'clicks' (wide_deep): 1,563 steps, 1,200,000 rows in 12.5 s, "
            "96,000 rows/s\n"
            "  loss         0.4463, the mean of the last 100 steps\n"
            "  evaluation   20000 rows, auc 0.7953, accuracy 0.8000\n"
            "  checkpoints  /tmp/c\n"
            "  exported     model.npz\n"
            "  metrics      m.jsonl\n"
            "  next         score rows: the same command with --mode predict --predictions FILE\n");
}

TEST(Summary, NamesNoFileThatThisWorkerDidNotWrite) {
  JobConfig job = Job();
  job.output.export_file = "model.npz";
  job.output.metrics_file = "m.jsonl";
  Report report = Trained();
  report.task = "worker:1";
  report.eval.reset();
  EXPECT_THAT(SummaryText(report, job, {}),
              AllOf(Not(HasSubstr("exported")), Not(HasSubstr("metrics")), Not(HasSubstr("next"))));
}

TEST(Summary, HasTheUseOfGpusOnlyIfThereWasAny) {
  Report report = Trained();
  EXPECT_THAT(SummaryText(report, Job(), {}), Not(HasSubstr("gpu")));
  report.gpu = {.steps = 1563,
                .measured_steps = 97,
                .compute_seconds = 0.097,
                .copy_seconds = 0.0485,
                .memory_bytes_max = 3 << 19};
  EXPECT_THAT(SummaryText(report, Job(), {}),
              HasSubstr("  gpu          1 ms of ops and 0.5 ms of copies a step, 1.5 MiB of memory "
                        "at most\n"));
  report.gpu.measured_steps = 0;
  EXPECT_THAT(SummaryText(report, Job(), {}),
              HasSubstr("  gpu          1.5 MiB of memory at most\n"));
}

TEST(Summary, OfAStoppedRunSaysHowToGoOn) {
  Report report = Trained();
  report.status = "interrupted";
  report.total_steps = 12345;
  report.eval.reset();
  EXPECT_THAT(
      SummaryText(report, Job(), {}),
      AllOf(HasSubstr("worker:0: was stopped while it trained job 'clicks' (wide_deep): 1,563 "
                      "steps so far (12,345 in all), "),
            HasSubstr("next         run the same command again: it continues from here")));
}

TEST(Summary, TheNextStepLeavesOutFlagsThatWouldLoseTheStateOrBeRefused) {
  Report report = Trained();
  EXPECT_THAT(SummaryText(report, Job(), {.training_flags = {"--fresh", "--max_steps"}}),
              HasSubstr("score rows: the same command without --fresh and --max_steps, but with "
                        "--mode predict --predictions FILE; write"));
  report.status = "interrupted";
  EXPECT_THAT(SummaryText(report, Job(), {.training_flags = {"--fresh"}}),
              HasSubstr("run the same command again without --fresh: it continues from here"));
  // An interrupted --continue goes on with the run that it began.
  EXPECT_THAT(SummaryText(report, Job(), {.training_flags = {"--continue"}}),
              HasSubstr("run the same command again: it continues from here"));
}

TEST(Summary, OfARunThatHadEndedBefore) {
  const Report report{.total_steps = 1563, .eval = Evaluation{.rows = 5, .rmse = 0.5}};
  EXPECT_THAT(
      SummaryText(report, Job(), {}),
      HasSubstr("worker:0: has nothing left to train of job 'clicks' (wide_deep), after 1,563 "
                "steps in all\n"));
}

TEST(Summary, OfTheOtherModes) {
  JobConfig job = Job();
  job.output.export_file = "model.npz";
  Report report{.eval = Evaluation{.rows = 5, .rmse = 0.5}};
  EXPECT_EQ(SummaryText(report, job, {.mode = "evaluate"}),
            "worker:0: evaluated job 'clicks' (wide_deep)\n"
            "  evaluation   5 rows, rmse 0.5000\n"
            "  exported     model.npz\n");
  report = {.examples = 999};
  EXPECT_THAT(SummaryText(report, Job(), {.mode = "predict", .predictions = "p.txt"}),
              AllOf(HasSubstr("scored 999 rows with job"), HasSubstr("  predictions  p.txt\n")));
  report = {.task = "evaluator:0", .checkpoints = 7};
  EXPECT_THAT(SummaryText(report, Job(), {.follows = true}),
              HasSubstr("evaluator:0: scored 7 checkpoints of job 'clicks'"));
}

TEST(Summary, SaysThatPushesWereDropped) {
  Report report = Trained();
  report.counters.pushes_dropped = 3;
  EXPECT_THAT(SummaryText(report, Job(), {}), HasSubstr("dropped      3 pushes"));
}

}  // namespace
}  // namespace cairn
