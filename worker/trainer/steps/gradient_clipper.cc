#include "worker/trainer/steps/gradient_clipper.h"

#include <vector>

#include "absl/types/span.h"
#include "common/errors.h"
#include "common/optimizer/clip.h"

namespace cairn {
namespace {

bool IsShared(const VariableSpec& spec, size_t servers) {
  if (spec.kind == VariableKind::kDense) return spec.shards.size() > 1;
  for (const int32_t ps : spec.bucket_ps) {
    if (ps != spec.bucket_ps.front()) return true;
  }
  // Without a plan the client spreads the buckets over all servers.
  return spec.bucket_ps.empty() && servers > 1;
}

}  // namespace

absl::Status CheckServersCanClip(const JobConfig& job, absl::Span<const VariableSpec> specs,
                                 size_t servers) {
  if (job.optimizer.global_clipnorm > 0) {
    return InvalidArgument("optimizer.global_clipnorm is ", job.optimizer.global_clipnorm,
                           ", but with strategy.consistency sync and several workers nobody has "
                           "the mean of all gradients: use clipvalue, or clipnorm on one server, "
                           "or strategy.type multi_worker_mirrored");
  }
  for (const VariableSpec& spec : specs) {
    if (spec.optimizer.clipnorm <= 0 || !IsShared(spec, servers)) continue;
    return InvalidArgument("optimizer.clipnorm is ", spec.optimizer.clipnorm, ", but variable '",
                           spec.name,
                           "' has several shards or servers, and with strategy.consistency sync "
                           "and several workers only a server that holds it whole can clip the "
                           "mean: use clipvalue, or one server and no strategy.partitioner, or "
                           "strategy.type multi_worker_mirrored");
  }
  return absl::OkStatus();
}

void ClipGradients(const JobConfig& job, StepState* state) {
  const auto limit = static_cast<float>(job.optimizer.global_clipnorm);
  if (limit <= 0) return;
  std::vector<absl::Span<float>> gradients;
  gradients.reserve(state->uses.size());
  for (VariableUse& use : state->uses) gradients.push_back(absl::MakeSpan(use.gradient));
  ClipByGlobalNorm(gradients, limit);
}

}  // namespace cairn
