#include "worker/trainer/run/divergence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/errors.h"
#include "worker/trainer/reports/progress.h"

namespace cairn {

void DivergenceGuard::Streak::Add(int64_t step, bool has) {
  if (!has) {
    count = 0;
  } else if (count++ == 0) {
    first = step;
  }
}

DivergenceGuard::DivergenceGuard(const JobConfig& job, std::string task)
    : watches_(job.divergence == "stop"),
      skips_not_finite_(job.not_finite == "skip"),
      task_(std::move(task)) {}

absl::Status DivergenceGuard::Check(int64_t step, double loss, bool last) {
  if (!watches_) return absl::OkStatus();
  const bool finite = std::isfinite(loss);
  if (!limit_.has_value() && finite) {
    limit_ = std::max(kExplodedLoss, kExplodedTimes * loss);
    first_loss_ = loss;
    first_step_ = step;
  }
  not_finite_.Add(step, !finite);
  if (not_finite_.count >= (skips_not_finite_ ? kStepsToDiverge : 1)) {
    return Diverged(absl::StrFormat(
        "the loss is %f at step %d%s", PrintableLoss(loss), step,
        not_finite_.count > 1 ? absl::StrCat(" and was not finite since step ", not_finite_.first)
                              : ""));
  }
  if (!finite) return absl::OkStatus();
  exploded_.Add(step, loss > *limit_);
  const int64_t enough =
      last ? std::clamp<int64_t>(step - first_step_, 1, kLastSteps) : kStepsToDiverge;
  if (exploded_.count < enough) return absl::OkStatus();
  return Diverged(absl::StrFormat("the loss is %.3g at step %d and above %.3g since step %d", loss,
                                  step, *limit_, exploded_.first));
}

absl::Status DivergenceGuard::Diverged(const std::string& what) const {
  const std::string start =
      limit_.has_value() ? absl::StrFormat(" (step %d: %.3g)", first_step_, first_loss_) : "";
  return FailedPrecondition(
      task_, ": training diverged: ", what, start,
      "; lower optimizer.learning_rate, set optimizer.clipnorm or scale the columns, "
      "and start with "
      "--fresh or an earlier checkpoint; optimizer.divergence: ignore continues");
}

}  // namespace cairn
