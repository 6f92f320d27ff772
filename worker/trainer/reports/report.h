// What a run reports: a line of JSON on stdout when it ends, and the lines of the metrics file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/client/ps_client.h"

namespace cairn {

// Quality on the evaluation rows. Which metrics there are depends on the loss.
struct Evaluation {
  int64_t rows = 0;
  std::optional<double> auc;       // two classes
  std::optional<double> log_loss;  // classification
  std::optional<double> accuracy;  // classification
  std::optional<double> rmse;      // regression
};

// "16281 rows, auc 0.9012, log_loss 0.3251, accuracy 0.8490", for the log.
std::string EvaluationText(const Evaluation& evaluation);

struct Report {
  std::string status = "completed";
  std::string task = "worker:0";
  std::string strategy = "parameter_server";
  std::string consistency = "async";
  int64_t steps = 0;                 // of this run
  int64_t total_steps = 0;           // of the job
  int64_t examples = 0;              // of this run
  double seconds = 0;                // training only: no start-up, no evaluation
  std::optional<double> train_loss;  // mean over the last 100 steps
  std::optional<Evaluation> eval;
  std::string exported;                // the file that this run wrote; not in the JSON report
  std::optional<int64_t> checkpoints;  // the evaluator task: how many it has scored
  StalenessSummary staleness;
  int64_t largest_step_gap = 0;  // to the slowest other live worker, when a step began
  ClientCounters counters;
};

// One line, without a line break. Numbers that are not finite become null. staleness.histogram
// counts pushes by the largest value of their bucket.
std::string ReportJson(const Report& report);

// Mean of the last 100 values.
// Thread safety: none.
class RecentMean {
 public:
  void Add(double value);
  std::optional<double> mean() const;

 private:
  std::deque<double> recent_;
};

// {"step":1,"loss":0.693147182,"examples":100,"seconds":0.001} a line.
// Thread safety: none.
class MetricsFile {
 public:
  // Truncates, or appends to what an interrupted run has written. Errors name the file.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path, bool append);
  ~MetricsFile();

  // `loss`: mean over the batch before its update; `seconds` since the run's first step began.
  absl::Status Write(int64_t step, double loss, int64_t examples, double seconds);
  // {"step":100,"eval":{"rows":16281,"auc":0.9,…}}, between the lines of steps 100 and 101.
  absl::Status WriteEvaluation(int64_t step, const Evaluation& evaluation);
  absl::Status Close();

 private:
  MetricsFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  const std::string path_;
  std::FILE* file_;
};

}  // namespace cairn
