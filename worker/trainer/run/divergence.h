// Detects that training has diverged: its loss is not finite, or has exploded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/config/job_config.h"

namespace cairn {

// Checks the loss of every step before its push. Training has diverged
// - at a loss that is NaN or infinite; with optimizer.not_finite: skip, which drops such a step's
//   push, at kStepsToDiverge such losses in a row;
// - at kStepsToDiverge losses in a row above both kExplodedLoss and kExplodedTimes the first
//   step's; or if a run ends with kLastSteps such losses (a shorter run: with all but its first).
//
// Columns in the ten thousands (losses of 1e8) and squared errors of labels below a million stay
// below these limits. Thread safety: none.
class DivergenceGuard {
 public:
  static constexpr double kExplodedLoss = 1e12;
  static constexpr double kExplodedTimes = 1e6;
  static constexpr int64_t kStepsToDiverge = 100;
  static constexpr int64_t kLastSteps = 10;

  DivergenceGuard(const JobConfig& job, std::string task);

  // Checks the mean `loss` of the batch of the job's step `step`; `last`: the run ends with it.
  // kFailedPrecondition: training has diverged: how, since which step, and what to do. With
  // optimizer.divergence: ignore always OK.
  absl::Status Check(int64_t step, double loss, bool last);

 private:
  // Consecutive steps that have a property.
  struct Streak {
    int64_t first = 0;
    int64_t count = 0;
    void Add(int64_t step, bool has);
  };

  absl::Status Diverged(const std::string& what) const;

  const bool watches_;
  const bool skips_not_finite_;
  const std::string task_;
  std::optional<double> limit_;
  double first_loss_ = 0;
  int64_t first_step_ = 0;
  Streak not_finite_;
  Streak exploded_;
};

}  // namespace cairn
