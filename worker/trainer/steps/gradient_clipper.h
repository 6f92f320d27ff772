// Clips gradients by norms.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/models/model.h"

namespace cairn {

// For workers whose mean the servers apply (strategy.consistency sync), which no worker has: checks
// that one server can take each norm. kInvalidArgument: names the limit, and the variable that
// several shards or servers share. `specs`: as planned for `servers` servers.
absl::Status CheckServersCanClip(const JobConfig& job, absl::Span<const VariableSpec> specs,
                                 size_t servers);

// Thread safety: immutable after construction; Clip may run in parallel on distinct states.
class GradientClipper {
 public:
  // Clips nothing.
  GradientClipper() = default;
  // `specs` in the model's order. global_clipnorm: the norm over all gradients of a step together.
  // clipnorm: of every variable, because its rows may move to several servers during the run. A
  // server that holds a variable whole applies clipnorm too, and servers always apply clipvalue.
  GradientClipper(const JobConfig& job, absl::Span<const VariableSpec> specs);

  bool does_nothing() const { return global_limit_ <= 0 && by_variable_.empty(); }
  // Clips the gradients in place. Rows that the step did not use have a zero gradient.
  void Clip(StepState* state) const;

 private:
  struct Limit {
    size_t variable;
    float norm;
  };
  float global_limit_ = 0;  // 0: no limit
  std::vector<Limit> by_variable_;
};

}  // namespace cairn
