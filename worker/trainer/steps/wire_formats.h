// How the values of a model's variables travel (strategy.wire).
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/value_format.h"
#include "worker/client/ps_client.h"
#include "worker/models/model.h"

namespace cairn {

// Keeps what rounding has left out of gradients of whole variables (int8, top_k), a float a value,
// until they are pushed next; a run that is killed loses that.
// Thread safety: one thread at a time; what SetSources hands out is written by the push.
class WireFormats {
 public:
  // kInvalidArgument: top_k for an embedding table; names it and what to do.
  static absl::StatusOr<WireFormats> Create(const WireConfig& config, const Model& model);

  // The first of `sources` and `targets` are those of the model's variables, in their order.
  void SetSources(absl::Span<PushSource> sources);
  void SetTargets(absl::Span<PullTarget> targets) const;
  // Of each variable whether a pull of all of it brings what has changed alone (delta_pulls).
  bool delta_pulls(size_t variable) const { return variables_[variable].delta; }

 private:
  struct OfVariable {
    ValueFormat push = ValueFormat::kPlain;
    ValueFormat pull = ValueFormat::kPlain;
    double kept_fraction = 0;
    bool delta = false;
    std::vector<float> residual;
  };
  std::vector<OfVariable> variables_;
};

}  // namespace cairn
