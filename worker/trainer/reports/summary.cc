#include "worker/trainer/reports/summary.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cairn {
namespace {

// "1,234,567".
std::string Grouped(int64_t number) {
  std::string digits = absl::StrCat(number);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string Headline(const Report& report, const JobConfig& job, const SummaryOptions& options) {
  const std::string who = absl::StrCat(report.task, ": ");
  const std::string model = absl::StrCat("job '", job.name, "' (", job.model.type, ")");
  if (options.follows) {
    return absl::StrCat(who, "scored ", report.checkpoints.value_or(0), " checkpoints of ", model);
  }
  if (options.mode == "predict") {
    return absl::StrCat(who, "scored ", Grouped(report.examples), " rows with ", model);
  }
  if (options.mode == "evaluate") return absl::StrCat(who, "evaluated ", model);
  const bool interrupted = report.status == "interrupted";
  if (report.steps == 0 && !interrupted) {
    return absl::StrCat(who, "has nothing left to train of ", model, ", after ",
                        Grouped(report.total_steps), " steps in all");
  }
  const double rate =
      report.seconds > 0 ? static_cast<double>(report.examples) / report.seconds : 0;
  return absl::StrCat(who, interrupted ? "was stopped while it trained " : "trained ", model, ": ",
                      Grouped(report.steps), " steps", interrupted ? " so far" : "",
                      report.total_steps != report.steps
                          ? absl::StrCat(" (", Grouped(report.total_steps), " in all)")
                          : "",
                      ", ", Grouped(report.examples), " rows",
                      absl::StrFormat(" in %.1f s, ", report.seconds), Grouped(std::llround(rate)),
                      " rows/s");
}

// "1.2 ms of ops and 0.8 ms of copies a step, 120 MiB of memory at most".
std::string GpuText(const GpuUsage& gpu) {
  if (!gpu.used()) return "";
  std::string text;
  if (gpu.measured_steps > 0) {
    text = absl::StrFormat("%.3g ms of ops and %.3g ms of copies a step, ",
                           gpu.compute_ms_per_step(), gpu.copy_ms_per_step());
  }
  constexpr double kMib = 1 << 20;
  return text + absl::StrFormat("%.1f MiB of memory at most",
                                static_cast<double>(gpu.memory_bytes_max) / kMib);
}

std::string NextStep(const Report& report, const JobConfig& job, const SummaryOptions& options) {
  if (options.follows || options.mode != "train") return "";
  const std::vector<std::string>& flags = options.training_flags;
  if (report.status == "interrupted") {
    const bool fresh = std::ranges::find(flags, "--fresh") != flags.end();
    return absl::StrCat("run the same command again", fresh ? " without --fresh" : "",
                        ": it continues from here");
  }
  if (!report.eval.has_value())
    return "";  // the first worker reports this, if there are rows to score
  const std::string without =
      flags.empty() ? "" : absl::StrCat(" without ", absl::StrJoin(flags, " and "), ", but");
  return absl::StrCat(
      "score rows: the same command", without, " with --mode predict --predictions FILE",
      job.output.export_file.empty() ? "; write the variables: --mode evaluate --export FILE.npz"
                                     : "");
}

}  // namespace

std::string SummaryText(const Report& report, const JobConfig& job, const SummaryOptions& options) {
  std::string text = Headline(report, job, options) + "\n";
  const auto add = [&](absl::string_view name, absl::string_view value) {
    if (!value.empty()) absl::StrAppendFormat(&text, "  %-12s %s\n", name, value);
  };
  if (report.train_loss.has_value()) {
    add("loss", absl::StrFormat("%.4g, the mean of the last 100 steps", *report.train_loss));
  }
  if (report.eval.has_value()) add("evaluation", EvaluationText(*report.eval));
  add("predictions", options.predictions);
  if (report.counters.pushes_dropped > 0) {
    add("dropped",
        absl::StrCat(report.counters.pushes_dropped,
                     " pushes, since they were not finite (optimizer.not_finite: skip)"));
  }
  add("gpu", GpuText(report.gpu));
  const bool trained = !options.follows && options.mode == "train";
  if (trained) add("checkpoints", job.checkpoint.directory);
  add("exported", trained ? report.exported : job.output.export_file);
  if (options.mode == "train") {
    add("metrics", report.metrics_file);
    add("tensorboard", job.output.tensorboard);
  }
  add("next", NextStep(report, job, options));
  return text;
}

}  // namespace cairn
