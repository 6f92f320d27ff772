// The summary of a run at its end, for people; report.h has the one for programs.
#pragma once

#include <string>
#include <vector>

#include "common/config/job_config.h"
#include "worker/trainer/reports/report.h"

namespace cairn {

struct SummaryOptions {
  std::string mode = "train";  // train, evaluate or predict
  std::string predictions;     // the file that predict wrote
  bool follows = false;        // this is the evaluator task
  // The given flags that a user repeats only with --mode train. Of these, --fresh starts over when
  // it is repeated.
  std::vector<std::string> training_flags;
};

// Several lines, each with a line end: the work done, its speed and quality, the files written, and
// the next step.
std::string SummaryText(const Report& report, const JobConfig& job, const SummaryOptions& options);

}  // namespace cairn
