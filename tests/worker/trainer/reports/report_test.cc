// The report's line and the metrics file's lines have the documented keys, also for unusual
// numbers.
#include "worker/trainer/reports/report.h"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

TEST(Report, HasTheKeysOfTheJobDocument) {
  Report report;
  report.steps = 326;
  report.examples = 32561;
  report.seconds = 0.41;
  report.train_loss = 0.3312;
  report.eval = Evaluation{.rows = 16281, .auc = 0.9012, .log_loss = 0.3251, .accuracy = 0.849};
  report.staleness = {
      .mean = 1.5, .p99 = 3, .max = 3, .histogram = {{0, 7}, {1, 0}, {2, 0}, {4, 9}}};
  report.checkpoints = 2;
  const Json json = Json::parse(ReportJson(report));
  for (const char* key : {"status",           "task",           "strategy",
                          "consistency",      "steps",          "total_steps",
                          "examples",         "seconds",        "examples_per_second",
                          "train_loss",       "eval",           "staleness",
                          "largest_step_gap", "bytes_pushed",   "bytes_pulled",
                          "pushes_dropped",   "retries",        "retained_bytes_max",
                          "replayed_pushes",  "replayed_bytes", "replay_seconds"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["examples_per_second"], 79417);
  EXPECT_EQ(json["eval"]["auc"], 0.9012);
  EXPECT_EQ(json["staleness"]["histogram"].dump(), R"({"0":7,"1":0,"2":0,"4":9})");
  EXPECT_EQ(json["checkpoints"], 2);
  EXPECT_FALSE(json["eval"].contains("rmse"));
}

// A run on CPUs has no figures of GPUs, not even zeros.
TEST(Report, HasTheUseOfGpusOnlyIfThereWasAny) {
  Report report;
  EXPECT_FALSE(Json::parse(ReportJson(report)).contains("gpu"));
  report.gpu = {.steps = 3, .memory_bytes = 512, .memory_bytes_max = 1024};
  EXPECT_EQ(Json::parse(ReportJson(report))["gpu"],
            Json::parse(R"({"steps": 3, "measured_steps": 0, "memory_bytes_max": 1024})"));
  report.gpu.measured_steps = 2;
  report.gpu.compute_seconds = 0.5;
  report.gpu.copy_seconds = 0.25;
  const Json gpu = Json::parse(ReportJson(report))["gpu"];
  EXPECT_EQ(gpu["compute_ms_per_step"], 250);
  EXPECT_EQ(gpu["copy_ms_per_step"], 125);
}

TEST(Report, WritesNullForALossThatIsNotFinite) {
  Report report;
  report.train_loss = std::nan("");
  const Json json = Json::parse(ReportJson(report));
  EXPECT_TRUE(json["train_loss"].is_null());
  EXPECT_EQ(json["examples_per_second"], 0);
}

TEST(RecentMean, CoversTheLastHundred) {
  RecentMean mean;
  EXPECT_FALSE(mean.mean().has_value());
  for (int i = 0; i < 150; ++i) mean.Add(i < 50 ? 1e9 : 2);
  EXPECT_EQ(mean.mean(), 2);
}

TEST(MetricsFile, WritesALineAStepAndAppendsWhenTold) {
  TempDir folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  for (const bool append : {false, true}) {
    auto file = MetricsFile::Open(path, append);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Write(1, 0.693147182, 100, 0.001).ok());
    ASSERT_TRUE((*file)->Write(2, std::nan(""), 100, 0.002).ok());
    ASSERT_TRUE((*file)->Close().ok());
  }
  std::ifstream in(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["loss"], 0.693147182);
  EXPECT_TRUE(lines[3]["loss"].is_null());
  EXPECT_EQ(lines[2]["step"], 1);
}

TEST(TaskMetricsFile, IsATasksOwn) {
  EXPECT_EQ(TaskMetricsFile("m.jsonl", "worker:1"), "m.worker-1.jsonl");
  EXPECT_EQ(TaskMetricsFile("/a.b/metrics", "evaluator:0"), "/a.b/metrics.evaluator-0");
}

}  // namespace
}  // namespace cairn
