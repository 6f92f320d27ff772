#include "worker/trainer/steps/gradient_clipper.h"

#include "common/optimizer/clip.h"

namespace cairn {
namespace {

bool IsShared(const VariableSpec& spec) {
  if (spec.kind == VariableKind::kDense) return spec.shards.size() > 1;
  for (const int32_t ps : spec.bucket_ps) {
    if (ps != spec.bucket_ps.front()) return true;
  }
  return spec.bucket_ps.empty();  // not planned yet: the client spreads the buckets over all
                                  // servers
}

}  // namespace

GradientClipper::GradientClipper(const JobConfig& job, absl::Span<const VariableSpec> specs)
    : global_limit_(static_cast<float>(job.optimizer.global_clipnorm)) {
  for (size_t i = 0; i < specs.size(); ++i) {
    const double limit = specs[i].optimizer.clipnorm;
    if (limit > 0 && IsShared(specs[i])) by_variable_.push_back({i, static_cast<float>(limit)});
  }
}

void GradientClipper::Clip(StepState* state) const {
  for (const Limit& limit : by_variable_) {
    ClipByNorm(absl::MakeSpan(state->uses[limit.variable].gradient), limit.norm);
  }
  if (global_limit_ <= 0) return;
  std::vector<absl::Span<float>> gradients;
  gradients.reserve(state->uses.size());
  for (VariableUse& use : state->uses) gradients.push_back(absl::MakeSpan(use.gradient));
  ClipByGlobalNorm(gradients, global_limit_);
}

}  // namespace cairn
