// Variables in memory that the optimizers' kernels update: a server in the process, without
// network, stripes or disk, to test models and optimizers alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/optimizer/optimizer.h"
#include "common/variables/variable_spec.h"
#include "worker/models/model.h"

namespace cairn::test {

// Thread safety: none.
class LocalServer {
 public:
  // All variables at their initial values, under one optimizer.
  LocalServer(absl::Span<const VariableSpec> specs, const OptimizerConfig& optimizer);

  // Fills the values of a planned step.
  void Pull(StepState* state);
  // Applies a step's gradients. Dense rows without a gradient get a zero gradient.
  void Push(const StepState& state);

  // The whole of a dense variable. Aborts if it does not exist.
  const std::vector<float>& Dense(const std::string& name) const;

 private:
  // Values and slots of a dense variable, or of one embedding row.
  struct Cells {
    std::vector<float> value;
    std::vector<std::vector<float>> slots;
  };
  struct Variable {
    VariableSpec spec;
    Cells dense;
    std::map<int64_t, Cells> rows;
  };

  Cells Fresh(size_t count) const;
  Cells& Row(Variable* variable, int64_t key);
  void Apply(const UpdateStep& step, Cells* cells, absl::Span<const float> gradient);

  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Variable> variables_;
  int64_t updates_ = 0;
};

}  // namespace cairn::test
