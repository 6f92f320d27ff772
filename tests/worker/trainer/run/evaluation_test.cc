// Evaluations of several batches, and of checkpoints by an evaluator that was restarted or killed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "ps_server/engine/engine.h"
#include "tests/worker/trainer/engines.h"
#include "tests/worker/trainer/linear_rows.h"
#include "worker/input/dataset/record_file.h"
#include "worker/trainer/checkpoints/checkpoint_folders.h"
#include "worker/trainer/reports/event_file.h"
#include "worker/trainer/run/checkpoint_follower.h"
#include "worker/trainer/run/in_process_server.h"
#include "worker/trainer/run/trainer.h"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRows = 5000;  // more than an evaluation scores at once
constexpr int64_t kColumns = 8;

class EvaluationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteLinearRows(folder_.Join("rows.libsvm"), kRows, kColumns);
    JobConfig& job = options_.job = LinearJob(folder_.Join("rows.libsvm"), kColumns);
    job.optimizer.type = "sgd";
    job.storage.directory = folder_.Join("store");
    job.evaluation.checkpoint_wait_seconds = 0;
    options_.stop_requested = [] { return false; };
  }

  Report Train(int64_t steps) {
    options_.task = "worker:0";
    options_.job.data.max_steps = steps;
    const absl::StatusOr<Report> report = RunTraining(options_, engines_.connector());
    EXPECT_OK(report);
    return report.value_or(Report());
  }

  absl::StatusOr<std::unique_ptr<InProcessServer>> Open(const std::string& folder) {
    return OpenCheckpoint(options_.job, folder, "evaluator-0");
  }

  Report Follow() {
    options_.task = "evaluator:0";
    const absl::StatusOr<Report> report =
        FollowCheckpoints(options_, [this](const std::string& folder) { return Open(folder); });
    EXPECT_OK(report);
    return report.value_or(Report());
  }

  TempDir folder_;
  TrainerOptions options_;
  Engines engines_{1};
};

TEST_F(EvaluationTest, TheAccuracyOfClassesIsThatOfAllBatches) {
  options_.job.model.loss = "softmax_cross_entropy";
  options_.job.model.classes = 2;
  const Report trained = Train(20);
  const std::string path = folder_.Join("predictions");
  ASSERT_OK(RunPrediction(options_, path, engines_.connector()));
  std::ifstream predictions(path);
  std::ifstream rows(folder_.Join("rows.libsvm"));
  int64_t right = 0;
  std::string row;
  for (double zero, one; predictions >> zero >> one && std::getline(rows, row);) {
    right += (one > zero) == (row[0] == '1') ? 1 : 0;
  }
  EXPECT_GT(right, kRows / 2);
  ASSERT_TRUE(trained.eval.has_value());
  EXPECT_EQ(trained.eval->rows, kRows);
  EXPECT_EQ(trained.eval->accuracy, static_cast<double>(right) / kRows);
}

// The steps of the metrics file's lines.
std::vector<int64_t> StepsIn(const std::string& metrics_file) {
  std::vector<int64_t> steps;
  std::ifstream in(metrics_file);
  for (std::string line; std::getline(in, line);) {
    steps.push_back(nlohmann::json::parse(line).at("step").get<int64_t>());
  }
  return steps;
}

// Whether the second record of the event file starts a session at `step`.
bool SessionStartsAt(const std::string& path, int64_t step) {
  constexpr size_t kWallTime = 9;  // bytes of the first field
  std::string record;
  auto file = RecordFile::Open(path, Compression::kNone);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(file.ok() && *ReadTFRecord(file->get(), &record));
  const std::string wanted = EncodeEvent({.wall_seconds = 1, .step = step, .session_starts = true});
  return record.substr(kWallTime) == wanted.substr(kWallTime);
}

TEST_F(EvaluationTest, ARestartedEvaluatorKeepsTheScoresOfTheOneBefore) {
  options_.job.checkpoint.directory = folder_.Join("checkpoints");
  options_.job.output.metrics_file = folder_.Join("m.jsonl");
  options_.job.output.tensorboard = folder_.Join("logs");
  const std::string scores = folder_.Join("m.evaluator-0.jsonl");
  Train(10);
  EXPECT_EQ(Follow().checkpoints, 1);
  Train(20);
  EXPECT_EQ(Follow().checkpoints, 1);
  EXPECT_THAT(StepsIn(scores), ElementsAre(10, 20));
  options_.fresh = true;
  Train(5);
  EXPECT_EQ(Follow().checkpoints, 1);
  EXPECT_THAT(StepsIn(scores), ElementsAre(5));
  std::vector<std::string> events;
  for (const auto& entry : fs::directory_iterator(folder_.Join("logs/evaluator-0"))) {
    events.push_back(entry.path().string());
  }
  std::sort(events.begin(), events.end());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_TRUE(SessionStartsAt(events[0], 10));
  EXPECT_TRUE(SessionStartsAt(events[1], 20));
  EXPECT_TRUE(SessionStartsAt(events[2], 5));
}

// Each state that a killed process may leave where the next one makes its store.
TEST_F(EvaluationTest, RemainsOfAKilledEvaluatorDoNotKeepTheNextOneFromACheckpoint) {
  const std::string directory = options_.job.checkpoint.directory = folder_.Join("checkpoints");
  Train(10);
  const absl::StatusOr<CheckpointFolders> made = ListCheckpoints(directory, "j");
  ASSERT_OK(made);
  ASSERT_EQ(made->finished.size(), 1u);
  const std::string folder = directory + "/" + made->finished[0].name;
  const std::string scratch = folder_.Join("store/.j.evaluator-0");
  for (const std::string removed : {"", "CAIRN", "db", "db/CURRENT", "not finished"}) {
    SCOPED_TRACE(removed);
    fs::create_directories(scratch);
    EngineOptions options;
    options.directory = scratch;
    ASSERT_OK(Engine::Open(options).status());
    if (removed == "not finished") std::ofstream(scratch + "/UNFINISHED") << "not whole\n";
    if (!removed.empty()) fs::remove_all(scratch + "/" + removed);
    const absl::StatusOr<std::unique_ptr<InProcessServer>> server = Open(folder);
    ASSERT_OK(server);
    // A running one is left alone.
    EXPECT_THAT(Open(folder), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in use")));
    ASSERT_OK((*server)->Connect({.job = "j"}, Deadline::In(absl::Seconds(20))));
  }
  EXPECT_FALSE(fs::exists(scratch));
}

}  // namespace
}  // namespace cairn::test
