#include "worker/trainer/steps/gradient_clipper.h"

#include <vector>

#include "absl/types/span.h"
#include "common/optimizer/clip.h"

namespace cairn {

GradientClipper::GradientClipper(const JobConfig& job)
    : global_limit_(static_cast<float>(job.optimizer.global_clipnorm)) {}

void GradientClipper::Clip(StepState* state) const {
  if (global_limit_ <= 0) return;
  std::vector<absl::Span<float>> gradients;
  gradients.reserve(state->uses.size());
  for (VariableUse& use : state->uses) gradients.push_back(absl::MakeSpan(use.gradient));
  ClipByGlobalNorm(gradients, global_limit_);
}

}  // namespace cairn
