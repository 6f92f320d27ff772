// The report of a run: a line of JSON on stdout at its end, and the lines of the metrics file.
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
#include "worker/ops/gpu_usage.h"

namespace cairn {

// Quality on the evaluation rows. The loss decides which metrics are set.
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
  double seconds = 0;                // training only, without start-up and evaluation
  std::optional<double> train_loss;  // mean over the last 100 steps
  std::optional<Evaluation> eval;
  std::string exported;                // the file that this run wrote; not in the JSON report
  std::string metrics_file;            // likewise
  std::optional<int64_t> checkpoints;  // for the evaluator task: how many checkpoints it has scored
  StalenessSummary staleness;
  int64_t largest_step_gap = 0;  // the largest gap to the slowest other live worker at the
                                 // beginning of a step
  ClientCounters counters;
  GpuUsage gpu;  // of the training; not in the JSON report if no GPU was used
};

// One line, without a line break. Numbers that are not finite become null. staleness.histogram
// counts pushes by the upper bound of their bucket. If GPUs computed, `gpu` has
//   steps, measured_steps   of all GPUs of this process (gpu_usage.h)
//   compute_ms_per_step     from a step's first op to its last; absent if no step was measured
//   copy_ms_per_step        of copies between host and device, which run beside the ops; likewise
//   memory_bytes_max        device memory allocated at most
std::string ReportJson(const Report& report);

// Each of several writers of a job has its own metrics file: "m.worker-1.jsonl" of worker:1 for
// "m.jsonl".
std::string TaskMetricsFile(const std::string& path, const std::string& task);

// The step of the last whole line of a metrics file; -1: the file has none.
int64_t LastStepOf(const std::string& metrics_file);

// Mean of the last 100 values.
// Thread safety: none.
class RecentMean {
 public:
  void Add(double value);
  std::optional<double> mean() const;

 private:
  std::deque<double> recent_;
};

// One line for each step: {"step":1,"loss":0.693147182,"examples":100,"seconds":0.001}. Thread
// safety: none.
class MetricsFile {
 public:
  // Truncates the file, or appends to the output of an interrupted run. Errors name the file.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path, bool append);
  ~MetricsFile();

  // `loss`: mean over the batch before its update. `seconds`: since the run's first step began.
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
