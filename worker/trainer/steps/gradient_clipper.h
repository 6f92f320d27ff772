// Clips gradients by norms that no single server can compute.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/models/model.h"

namespace cairn {

// Thread safety: immutable after construction; Clip may run in parallel on distinct states.
class GradientClipper {
 public:
  // `specs` in the model's order. global_clipnorm: the norm over all gradients of a step together.
  // clipnorm: applied here only to variables that several servers share. A server that holds a
  // variable whole applies clipnorm itself, and servers always apply clipvalue.
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
