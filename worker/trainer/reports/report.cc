#include "worker/trainer/reports/report.h"

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// Nine significant digits hold every float32; JSON has no NaN.
Json Number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return Json::parse(absl::StrFormat("%.9g", value));
}

void AddIfGiven(Json* object, const char* key, const std::optional<double>& value) {
  if (value.has_value()) (*object)[key] = Number(*value);
}

Json EvaluationJson(const Evaluation& evaluation) {
  Json object;
  object["rows"] = evaluation.rows;
  AddIfGiven(&object, "auc", evaluation.auc);
  AddIfGiven(&object, "log_loss", evaluation.log_loss);
  AddIfGiven(&object, "accuracy", evaluation.accuracy);
  AddIfGiven(&object, "rmse", evaluation.rmse);
  return object;
}

Json GpuJson(const GpuUsage& gpu) {
  Json object;
  object["steps"] = gpu.steps;
  object["measured_steps"] = gpu.measured_steps;
  if (gpu.measured_steps > 0) {
    object["compute_ms_per_step"] = Number(gpu.compute_ms_per_step());
    object["copy_ms_per_step"] = Number(gpu.copy_ms_per_step());
  }
  object["memory_bytes_max"] = gpu.memory_bytes_max;
  return object;
}

}  // namespace

std::string TaskMetricsFile(const std::string& path, const std::string& task) {
  std::filesystem::path file(path);
  const std::string name =
      absl::StrCat(file.stem().string(), ".", absl::StrReplaceAll(task, {{":", "-"}}),
                   file.extension().string());
  return file.replace_filename(name).string();
}

std::string EvaluationText(const Evaluation& evaluation) {
  std::string text = absl::StrCat(evaluation.rows, " rows");
  const auto add = [&](absl::string_view name, const std::optional<double>& value) {
    if (value.has_value()) absl::StrAppendFormat(&text, ", %s %.4f", name, *value);
  };
  add("auc", evaluation.auc);
  add("log_loss", evaluation.log_loss);
  add("accuracy", evaluation.accuracy);
  add("rmse", evaluation.rmse);
  return text;
}

std::string ReportJson(const Report& report) {
  Json json;
  json["status"] = report.status;
  json["task"] = report.task;
  json["strategy"] = report.strategy;
  json["consistency"] = report.consistency;
  json["steps"] = report.steps;
  json["total_steps"] = report.total_steps;
  json["examples"] = report.examples;
  json["seconds"] = Number(report.seconds);
  const double rate =
      report.seconds > 0 ? static_cast<double>(report.examples) / report.seconds : 0;
  json["examples_per_second"] = static_cast<int64_t>(std::llround(rate));
  AddIfGiven(&json, "train_loss", report.train_loss);
  if (report.eval.has_value()) json["eval"] = EvaluationJson(*report.eval);
  if (report.checkpoints.has_value()) json["checkpoints"] = *report.checkpoints;
  Json histogram = Json::object();
  for (const StalenessSummary::Bucket& bucket : report.staleness.histogram) {
    histogram[absl::StrCat(bucket.up_to)] = bucket.pushes;
  }
  json["staleness"] = {{"mean", Number(report.staleness.mean)},
                       {"p99", report.staleness.p99},
                       {"max", report.staleness.max},
                       {"histogram", std::move(histogram)}};
  json["largest_step_gap"] = report.largest_step_gap;
  json["bytes_pushed"] = report.counters.bytes_pushed;
  json["bytes_pulled"] = report.counters.bytes_pulled;
  json["pushes_dropped"] = report.counters.pushes_dropped + report.counters.pushes_late;
  json["pushes_late"] = report.counters.pushes_late;
  json["retries"] = report.counters.retries;
  json["retained_bytes_max"] = report.counters.retained_bytes_max;
  json["replayed_pushes"] = report.counters.replayed_pushes;
  json["replayed_bytes"] = report.counters.replayed_bytes;
  json["replay_seconds"] = Number(report.counters.replay_seconds);
  if (report.gpu.used()) json["gpu"] = GpuJson(report.gpu);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void RecentMean::Add(double value) {
  constexpr size_t kRecent = 100;
  recent_.push_back(value);
  if (recent_.size() > kRecent) recent_.pop_front();
}

std::optional<double> RecentMean::mean() const {
  if (recent_.empty()) return std::nullopt;
  double sum = 0;
  for (const double value : recent_) sum += value;
  return sum / static_cast<double>(recent_.size());
}

int64_t LastStepOf(const std::string& metrics_file) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(metrics_file, unknown)) return -1;  // a pipe has no end
  std::ifstream in(metrics_file);
  int64_t step = -1;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, /*cb=*/nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;
    const auto found = json.find("step");
    if (found != json.end() && found->is_number_integer()) step = found->get<int64_t>();
  }
  return step;
}

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(const std::string& path,
                                                               bool append) {
  std::FILE* file = std::fopen(path.c_str(), append ? "ae" : "we");
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("metrics file ", path));
  return std::unique_ptr<MetricsFile>(new MetricsFile(path, file));
}

MetricsFile::~MetricsFile() {
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status MetricsFile::Write(int64_t step, double loss, int64_t examples, double seconds) {
  // stdio's buffer and printf take about a microsecond per line, without allocation.
  const int written =
      std::isfinite(loss)
          ? std::fprintf(
                file_, "{\"step\":%lld,\"loss\":%.9g,\"examples\":%lld,\"seconds\":%.6g}\n",
                static_cast<long long>(step), loss, static_cast<long long>(examples), seconds)
          : std::fprintf(file_,
                         "{\"step\":%lld,\"loss\":null,\"examples\":%lld,\"seconds\":%.6g}\n",
                         static_cast<long long>(step), static_cast<long long>(examples), seconds);
  if (written < 0) return absl::ErrnoToStatus(errno, absl::StrCat("metrics file ", path_));
  return absl::OkStatus();
}

absl::Status MetricsFile::WriteEvaluation(int64_t step, const Evaluation& evaluation) {
  Json line;
  line["step"] = step;
  line["eval"] = EvaluationJson(evaluation);
  // Flushes, so that a reader that follows the file sees an evaluation at once.
  if (std::fprintf(file_, "%s\n", line.dump().c_str()) < 0 || std::fflush(file_) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("metrics file ", path_));
  }
  return absl::OkStatus();
}

absl::Status MetricsFile::Close() {
  std::FILE* file = std::exchange(file_, nullptr);
  if (file != nullptr && std::fclose(file) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("metrics file ", path_));
  }
  return absl::OkStatus();
}

}  // namespace cairn
