// Clipping by norms that no single server can know.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/models/model.h"

namespace cairn {

// Thread safety: immutable once made; Clip may run at once on distinct states.
class GradientClipper {
 public:
  // `specs` in the model's order. global_clipnorm: over all gradients of a step together. clipnorm:
  // here only for variables that several servers share; a server that holds a variable whole clips
  // it itself, as for clipvalue always.
  GradientClipper(const JobConfig& job, absl::Span<const VariableSpec> specs);

  bool does_nothing() const { return global_limit_ <= 0 && by_variable_.empty(); }
  // Clips the gradients in place. Rows that the step did not touch have a zero gradient.
  void Clip(StepState* state) const;

 private:
  struct Limit {
    size_t variable;
    float norm;
  };
  float global_limit_ = 0;  // 0: none
  std::vector<Limit> by_variable_;
};

}  // namespace cairn
