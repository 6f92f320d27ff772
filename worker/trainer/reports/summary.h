// What a run says of itself at its end, for people; report.h has it for programs.
#pragma once

#include <string>

#include "common/config/job_config.h"
#include "worker/trainer/reports/report.h"

namespace cairn {

struct SummaryOptions {
  std::string mode = "train";  // evaluate predict
  std::string predictions;     // where predict wrote
  bool follows = false;        // the evaluator task
};

// Some lines, each with its end: what was done, how fast and how well, which files it left, and
// what to do next.
std::string SummaryText(const Report& report, const JobConfig& job, const SummaryOptions& options);

}  // namespace cairn
