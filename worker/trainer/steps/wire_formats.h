// The wire format of each model variable's values (strategy.wire).
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/value_format.h"
#include "worker/client/ps_client.h"
#include "worker/models/model.h"

namespace cairn {

// Keeps the rounding errors of whole-variable gradients (int8, top_k), one float for each value,
// and adds them to the next push; they are lost if the process is killed. Thread safety: one thread
// at a time; the push writes to the buffers that SetSources provides.
class WireFormats {
 public:
  // kInvalidArgument: top_k for an embedding table; names it and the remedy.
  static absl::StatusOr<WireFormats> Create(const WireConfig& config, const Model& model);

  // The first elements of `sources` and `targets` are the model's variables, in their order.
  void SetSources(absl::Span<PushSource> sources);
  void SetTargets(absl::Span<PullTarget> targets) const;
  // Whether a pull of the whole variable transfers only the changed values (delta_pulls).
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
